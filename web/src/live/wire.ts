// Messages of the service as they come, checked as far as the pages rely on them.

import type { DetectorStatistics, DetectorStatus, Problem, Ring, Role, ServiceEvent } from "./types";

export type Message =
  | { type: "welcome"; name: string; role: Role; version: string }
  | { type: "status"; detectors: DetectorStatus[] }
  | { type: "statistics"; statistics: DetectorStatistics; ring: Ring | null }
  | { type: "event"; event: ServiceEvent }
  | { type: "no_image"; detail: string; hint: string }
  | { type: "problem"; problem: Problem };

type Fields = Record<string, unknown>;

const isObject = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The message, or null if this page does not know it: a newer service may send more. */
export function readMessage(data: unknown): Message | null {
  const fields = parsed(data);
  if (fields === null) return null;
  switch (fields.type) {
    case "welcome":
      return { type: "welcome", name: text(fields.name), role: role(fields.role), version: text(fields.version) };
    case "status":
      return Array.isArray(fields.detectors)
        ? { type: "status", detectors: fields.detectors as DetectorStatus[] }
        : null;
    case "statistics":
      return isObject(fields.statistics)
        ? { type: "statistics", statistics: fields.statistics as DetectorStatistics, ring: ring(fields) }
        : null;
    case "event":
      return isObject(fields.event) ? { type: "event", event: fields.event as unknown as ServiceEvent } : null;
    case "no_image":
      return { type: "no_image", detail: text(fields.detail), hint: text(fields.hint) };
    case "problem":
      return { type: "problem", problem: problem(fields) };
    default:
      return null;
  }
}

/** The number of a frame, for its acknowledgement; null if it is none. */
export function frameSequence(data: ArrayBuffer): number | null {
  if (data.byteLength < 8) return null;
  const view = new DataView(data);
  const length = view.getUint32(4, true);
  if (view.getUint32(0, true) !== FRAME_MAGIC || length > data.byteLength - 8) return null;
  const header = parsed(new TextDecoder().decode(new Uint8Array(data, 8, length)));
  return typeof header?.sequence === "number" ? header.sequence : null;
}

/** "KFR1" as a little-endian number. */
const FRAME_MAGIC = 0x3152464b;

function parsed(data: unknown): Fields | null {
  if (typeof data !== "string") return null;
  try {
    const value: unknown = JSON.parse(data);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** Whoever has a role that is not known here may only look. */
function role(value: unknown): Role {
  return value === "operate" || value === "configure" ? value : "view";
}

function ring(fields: Fields): Ring | null {
  const { images, run } = fields;
  if (!Array.isArray(images) || typeof run !== "number") return null;
  const [first, last]: unknown[] = images;
  return typeof first === "number" && typeof last === "number" ? { first, last, run } : null;
}

function problem(fields: Fields): Problem {
  const hint = typeof fields.hint === "string" ? fields.hint : undefined;
  return { code: text(fields.code), detail: text(fields.detail), hint };
}
