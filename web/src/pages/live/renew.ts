// Keeps what the service says of the newest run as new as it must be.

import { computed, effect, type Signal, signal } from "@preact/signals";
import { problemOf } from "../../api/client";
import { isCurrent, type Services, shownStatus } from "../../app/services";
import type { DetectorStatus } from "../../live/types";

const RENEW_MS = 2000;

export interface Renewed<T> {
  detector: string | null;
  answer: T | null;
  /** Why the last question was not answered. */
  problem: string | null;
}

export const NOTHING_YET = { detector: null, answer: null, problem: null };

const isVisible = signal(true);
if (typeof document !== "undefined") {
  const look = () => {
    isVisible.value = !document.hidden;
  };
  look();
  document.addEventListener("visibilitychange", look);
}

/** Changes whenever there may be something new, beside the images of a run that is going. */
export function momentOf(status: DetectorStatus | null): string | null {
  return status && `${status.state} ${status.run}`;
}

export const isGoing = (moment: string): boolean => moment.startsWith("running ");

/** Asks again and again while a run is going and somebody looks, else once for each change, until the function that it
 * gives is called. `ask` gets what was answered before in the same run. */
export function keepNew<T>(
  { connection }: Pick<Services, "connection">,
  ask: (detector: string, last: T | null) => Promise<T>,
  state: Signal<Renewed<T>>,
): () => void {
  const now = computed(() => momentOf(shownStatus(connection)));
  const mayAsk = computed(() => isCurrent(connection) && isVisible.value);

  const begin = (detector: string, moment: string): (() => void) => {
    let isWanted = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (fields: Partial<Renewed<T>>) => {
      const before = state.peek().detector === detector ? state.peek() : { ...NOTHING_YET, detector };
      if (isWanted) state.value = { ...before, ...fields };
    };
    const renew = async (last: T | null) => {
      let answer: T | null = null;
      try {
        answer = await ask(detector, last);
        show({ answer, problem: null });
      } catch (error) {
        show({ problem: problemOf(error).detail });
      }
      // Without an answer the run may have other results now, so all is asked for again.
      if (isWanted && isGoing(moment)) timer = setTimeout(() => renew(answer), RENEW_MS);
    };
    void renew(null);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  };

  return effect(() => {
    const detector = connection.detector.value;
    if (detector === null || now.value === null || !mayAsk.value) return;
    return begin(detector, now.value);
  });
}
