// Which events are shown.

import type { ServiceEvent } from "../../api/client";

export type Level = "info" | "warning" | "error";

export interface Filter {
  level: Level;
  text: string;
  /** Null: all of them. */
  detector: string | null;
}

const RANK: Record<ServiceEvent["severity"], number> = { success: 0, info: 0, warning: 1, error: 2 };

export function isShown(event: ServiceEvent, { level, text, detector }: Filter): boolean {
  if (RANK[event.severity] < RANK[level]) return false;
  // Events of the service itself have no detector, and concern each.
  if (detector !== null && event.detector && event.detector !== detector) return false;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const whole = `${event.event} ${event.detector ?? ""} ${event.message}`.toLowerCase();
  return words.every((word) => whole.includes(word));
}
