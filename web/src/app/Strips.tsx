// Strips between bar and page: lost contact, and problems with what happened and what to do.

import type { JSX } from "preact";
import type { Problem } from "../live/types";
import { CopyButton } from "./CopyButton";
import { clock } from "./format";
import { SeverityWord } from "./Shapes";
import type { Services } from "./services";

export function ContactStrip({ services }: { services: Services }): JSX.Element | null {
  const contact = services.connection.contact.value;
  if (contact.kind === "connecting") {
    return (
      <div class="strip" role="status">
        Connecting with konkordia at {location.host} …
      </div>
    );
  }
  if (contact.kind !== "lost") return null;
  return (
    <div class="strip error" role="alert">
      <div class="strip-text">
        <SeverityWord severity="error" word="No contact" /> with konkordia at {location.host} since{" "}
        {clock(contact.since)}, trying again ({contact.attempts}). What is shown below is what was last received.
      </div>
    </div>
  );
}

interface ProblemStripProps {
  problem: Problem;
  onClose?: () => void;
}

/** What happened and why, what to do, and the details to pass on. */
export function ProblemStrip({ problem, onClose }: ProblemStripProps): JSX.Element {
  const { code, detail, hint } = problem;
  return (
    <div class="strip error" role="alert">
      <div class="strip-text">
        <SeverityWord severity="error" word="Not done:" /> {detail}
        {hint && (
          <p>
            <strong>What to do:</strong> {hint}
          </p>
        )}
        <p class="soft mono">{code}</p>
      </div>
      <div class="button-row">
        <CopyButton text={JSON.stringify({ code, detail, hint }, null, 2)} label="Copy details" />
        {onClose && (
          <button type="button" class="button" onClick={onClose}>
            Close
          </button>
        )}
      </div>
    </div>
  );
}

export function ProblemStrips({ services }: { services: Services }): JSX.Element {
  const { connection, problems } = services;
  const ofConnection = connection.problem.value;
  return (
    <>
      {ofConnection?.code === "other_version" && (
        <div class="strip warning" role="alert">
          <div class="strip-text">
            <SeverityWord severity="warning" word="New version:" /> {ofConnection.detail}.
          </div>
          <button type="button" class="button" onClick={() => location.reload()}>
            Reload the page
          </button>
        </div>
      )}
      {ofConnection !== null && ofConnection.code !== "other_version" && (
        <ProblemStrip
          problem={ofConnection}
          onClose={() => {
            connection.problem.value = null;
          }}
        />
      )}
      {problems.value.map((problem) => (
        <ProblemStrip
          key={problem.code + problem.detail}
          problem={problem}
          onClose={() => {
            problems.value = problems.value.filter((other) => other !== problem);
          }}
        />
      ))}
    </>
  );
}
