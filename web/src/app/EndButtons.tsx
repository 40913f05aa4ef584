// Stop and Cancel, on every page while there is something to end.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { DetectorStatus } from "../live/types";
import { whyNot } from "./commands";
import { Dialog } from "./Dialog";
import { heldByOther, operatorWords } from "./operator";
import { report, type Services } from "./services";

/** After this time a run is worth a question before it is thrown away. */
const ASK_AFTER_S = 30;

interface EndProps {
  services: Services;
  status: DetectorStatus | null;
}

export type EndCommand = "stop" | "cancel";

interface Ending {
  /** Sends the command, or asks first: before the run of somebody else is ended, and before a long one is cancelled. */
  end: (command: EndCommand) => void;
  question: JSX.Element | null;
}

export function useEnding({ services, status }: EndProps, send: (command: EndCommand) => void): Ending {
  const [asked, setAsked] = useState<EndCommand | null>(null);
  const other = heldByOther(services.connection.contact.value, status);
  const end = (command: EndCommand): void => {
    const isLong = command === "cancel" && status?.state === "running" && status.state_age_s > ASK_AFTER_S;
    const hasRun = status?.state === "armed" || status?.state === "running";
    if (isLong || (hasRun && other !== null)) setAsked(command);
    else send(command);
  };
  const question = asked && (
    <EndQuestion
      command={asked}
      other={other}
      status={status}
      onClose={() => setAsked(null)}
      onSend={() => {
        setAsked(null);
        send(asked);
      }}
    />
  );
  return { end, question };
}

interface QuestionProps {
  command: EndCommand;
  other: string | null;
  status: DetectorStatus | null;
  onClose: () => void;
  onSend: () => void;
}

const WORDS: Record<EndCommand, string> = { stop: "Stop", cancel: "Cancel" };

function EndQuestion({ command, other, status, onClose, onSend }: QuestionProps): JSX.Element {
  const run = other === null ? "the run" : `the run of ${other}`;
  return (
    <Dialog title={`${WORDS[command]} ${run}?`} onClose={onClose}>
      {other !== null && <p>It was {operatorWords(status)}.</p>}
      <p>
        {command === "stop"
          ? "Everything that has arrived is kept; no further images are taken."
          : "Its files are closed with the images that they have. Stop keeps everything that has arrived."}
      </p>
      <div class="button-row dialog-end">
        <button type="button" class="button danger" onClick={onSend}>
          {WORDS[command]} {run}
        </button>
        <button type="button" class="button" onClick={onClose}>
          Go on measuring
        </button>
      </div>
    </Dialog>
  );
}

export function EndButtons({ services, status }: EndProps): JSX.Element | null {
  const { connection, api, problems } = services;
  const { end, question } = useEnding({ services, status }, (command) => {
    if (status) api.command(command, status.detector).catch((error: unknown) => report(problems, error));
  });
  if (status === null || status.state === "idle") return null;
  const contact = connection.contact.value;
  const [noStop, noCancel] = [whyNot("stop", contact, status), whyNot("cancel", contact, status)];
  const isError = status.state === "error";
  return (
    <span class="end-buttons">
      {!isError && (
        <button
          type="button"
          class="button"
          disabled={noStop !== null}
          title={noStop ?? ""}
          onClick={() => end("stop")}
        >
          Stop
        </button>
      )}
      <button
        type="button"
        class="button danger"
        disabled={noCancel !== null}
        title={noCancel ?? ""}
        onClick={() => end("cancel")}
      >
        {isError ? "Clear error" : "Cancel"}
      </button>
      {noCancel !== null && <span class="soft end-reason">{noCancel}</span>}
      {question}
    </span>
  );
}
