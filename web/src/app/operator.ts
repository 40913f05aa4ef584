// Who holds the detector.

import type { Contact, DetectorStatus } from "../live/types";
import { elapsed } from "./format";

const DONE: Record<string, string> = { arm: "armed", start: "started", pedestal: "pedestals taken" };

/** For example: armed by alice 12 s ago. Null if nobody holds it. */
export function operatorWords(status: DetectorStatus | null): string | null {
  const operator = status?.operator;
  if (!operator) return null;
  return `${DONE[operator.action] ?? operator.action} by ${operator.name} ${elapsed(operator.age_s)} ago`;
}

/** Name of somebody else who holds the detector. Without tokens nobody knows who is who: then null. */
export function heldByOther(contact: Contact, status: DetectorStatus | null): string | null {
  const name = status?.operator?.name;
  if (!name || contact.kind !== "connected" || contact.name === "local") return null;
  return name === contact.name ? null : name;
}
