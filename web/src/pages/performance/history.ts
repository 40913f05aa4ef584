// Rates of the last five minutes, kept as long as the tab is open, whatever page is shown.

import { effect, signal } from "@preact/signals";
import type { Connection, DetectorStatistics } from "../../live/types";

export const KEPT_S = 300;

/** Seconds since 1970, and what was measured then; null where it was not told. */
export interface Sample {
  timeS: number;
  receivedHz: number | null;
  committedHz: number | null;
  writtenHz: number | null;
  bytesPerS: number | null;
  /** Of the fullest queue, in percent. */
  bufferPercent: number | null;
}

export const history = signal<Sample[]>([]);

export function sampleOf({ rates, queues }: DetectorStatistics, timeS: number): Sample {
  const full = Object.values(queues);
  return {
    timeS,
    receivedHz: rates.received_hz ?? rates.received_messages_hz ?? null,
    committedHz: rates.committed_hz ?? null,
    writtenHz: rates.written_hz ?? null,
    bytesPerS: rates.received_bytes_per_s ?? rates.committed_bytes_per_s ?? null,
    bufferPercent: full.length > 0 ? 100 * Math.max(...full) : null,
  };
}

const GAP_S = 3;
const EMPTY = { receivedHz: null, committedHz: null, writtenHz: null, bytesPerS: null, bufferPercent: null };

/** With the new sample and without those that are too old. Time without contact is a gap, not a line. */
export function withSample(samples: readonly Sample[], sample: Sample): Sample[] {
  const kept = samples.filter(({ timeS }) => timeS > sample.timeS - KEPT_S);
  const last = kept.at(-1);
  if (last !== undefined && sample.timeS - last.timeS > GAP_S) kept.push({ ...EMPTY, timeS: last.timeS + 1 });
  return [...kept, sample];
}

export function keepHistory(connection: Connection): void {
  let detector: string | null = null;
  effect(() => {
    const statistics = connection.statistics.value;
    if (statistics === null) return;
    const before = statistics.detector === detector ? history.peek() : [];
    detector = statistics.detector;
    history.value = withSample(before, sampleOf(statistics, Date.now() / 1000));
  });
}
