// Which commands are possible now; the reason why not is shown at the button.

import type { Contact, DetectorStatus, Role } from "../live/types";

export type Verb = "arm" | "start" | "trigger" | "stop" | "cancel" | "pedestal";

const HAS_RUN = "a run is in progress: stop or cancel it first";
const DRAINING = "the last images of the run are still being written";

export const mayOperate = (role: Role): boolean => role !== "view";

/** Why nobody at this tab can operate now; null if they can. */
export function whyNotOperate(contact: Contact): string | null {
  switch (contact.kind) {
    case "connected":
      return mayOperate(contact.role)
        ? null
        : `${contact.name || "this token"} may only look: a token with the role operate is needed`;
    case "lost":
      return "there is no contact with the service";
    case "token":
      return "a token is needed";
    case "connecting":
      return "the contact with the service is just being made";
  }
}

/** Why this command is not possible now; null if it is. */
export function whyNot(verb: Verb, contact: Contact, status: DetectorStatus | null): string | null {
  return (
    whyNotOperate(contact) ?? (status === null ? "the state of the detector is not known yet" : ofState(verb, status))
  );
}

function ofState(verb: Verb, { state, draining, kind }: DetectorStatus): string | null {
  const isDraining = state === "running" && draining;
  switch (verb) {
    case "cancel":
      return state === "idle" ? "nothing is armed or running" : null;
    case "stop":
      if (isDraining) return DRAINING;
      return state === "armed" || state === "running" ? null : "no run is armed or in progress";
    case "trigger":
      if (isDraining) return DRAINING;
      return state === "armed" || state === "running" ? null : "the detector is not armed";
    case "start":
      if (isDraining) return DRAINING;
      return state === "running" ? HAS_RUN : null;
    case "arm":
      if (isDraining) return DRAINING;
      if (state === "armed") return "it is already armed: start it, or cancel first";
      return state === "running" ? HAS_RUN : null;
    case "pedestal":
      if (kind === "stream") return "pedestals are taken of JUNGFRAU detectors that send packets only";
      return state === "idle" || state === "error" ? null : HAS_RUN;
  }
}
