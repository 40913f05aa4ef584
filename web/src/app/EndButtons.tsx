// Stop and Cancel, on every page while there is something to end.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { PlainCommand } from "../api/client";
import type { DetectorStatus } from "../live/types";
import { whyNot } from "./commands";
import { Dialog } from "./Dialog";
import { report, type Services } from "./services";

/** After this time a run is worth a question before it is thrown away. */
const ASK_AFTER_S = 30;

interface EndProps {
  services: Services;
  status: DetectorStatus | null;
}

export function EndButtons({ services, status }: EndProps): JSX.Element | null {
  const { connection, api, problems } = services;
  const [isAsking, setAsking] = useState(false);
  if (status === null || status.state === "idle") return null;
  const contact = connection.contact.value;
  const [noStop, noCancel] = [whyNot("stop", contact, status), whyNot("cancel", contact, status)];
  const send = (command: PlainCommand): void => {
    setAsking(false);
    api.command(command, status.detector).catch((error: unknown) => report(problems, error));
  };
  const cancel = (): void => {
    if (status.state === "running" && status.state_age_s > ASK_AFTER_S) setAsking(true);
    else send("cancel");
  };
  const isError = status.state === "error";
  return (
    <span class="end-buttons">
      {!isError && (
        <button
          type="button"
          class="button"
          disabled={noStop !== null}
          title={noStop ?? ""}
          onClick={() => send("stop")}
        >
          Stop
        </button>
      )}
      <button type="button" class="button danger" disabled={noCancel !== null} title={noCancel ?? ""} onClick={cancel}>
        {isError ? "Clear error" : "Cancel"}
      </button>
      {noCancel !== null && <span class="soft end-reason">{noCancel}</span>}
      {isAsking && (
        <Dialog title="Cancel the run?" onClose={() => setAsking(false)}>
          <p>Its files are closed with the images that they have. Stop keeps everything that has arrived.</p>
          <div class="button-row dialog-end">
            <button type="button" class="button danger" onClick={() => send("cancel")}>
              Cancel the run
            </button>
            <button type="button" class="button" onClick={() => setAsking(false)}>
              Go on measuring
            </button>
          </div>
        </Dialog>
      )}
    </span>
  );
}
