// Keeps the plot as new as it must be: again and again while a run is going and somebody looks, else once.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { problemOf } from "../../api/client";
import { isCurrent, type Services, shownStatus } from "../../app/services";
import { type Answer, askResults, isGoing, momentOf } from "./ask";

const RENEW_MS = 2000;

interface State {
  detector: string | null;
  answer: Answer | null;
  /** Why the last question was not answered. */
  problem: string | null;
}

const NOTHING: State = { detector: null, answer: null, problem: null };

function useIsVisible(): boolean {
  const isVisible = useSignal(!document.hidden);
  useEffect(() => {
    const look = () => {
      isVisible.value = !document.hidden;
    };
    look();
    document.addEventListener("visibilitychange", look);
    return () => document.removeEventListener("visibilitychange", look);
  }, [isVisible]);
  return isVisible.value;
}

export function useResults({ connection, api }: Services, wanted: string | null): State {
  const state = useSignal<State>(NOTHING);
  const detector = connection.detector.value;
  const moment = useComputed(() => momentOf(shownStatus(connection))).value;
  const hasContact = useComputed(() => isCurrent(connection)).value;
  const isVisible = useIsVisible();
  useEffect(() => {
    if (detector === null || moment === null || !hasContact || !isVisible) return;
    let isWanted = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (fields: Partial<State>) => {
      const before = state.peek().detector === detector ? state.peek() : { ...NOTHING, detector };
      if (isWanted) state.value = { ...before, ...fields };
    };
    const renew = async (last: Answer | null) => {
      let answer: Answer | null = null;
      try {
        answer = await askResults(api, detector, wanted, last);
        show({ answer, problem: null });
      } catch (error) {
        show({ problem: problemOf(error).detail });
      }
      // Without an answer the names may be others now, so they are asked for again.
      if (isWanted && isGoing(moment)) timer = setTimeout(() => renew(answer), RENEW_MS);
    };
    void renew(null);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [api, detector, moment, hasContact, isVisible, wanted, state]);
  return state.value.detector === detector ? state.value : NOTHING;
}
