// Something that is asked of the service when a page is shown, and again when what it depends on changes.

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type ApiProblem, problemOf } from "../api/client";

export interface Loaded<T> {
  value: T | null;
  problem: ApiProblem | null;
  isLoading: boolean;
}

/** What came last stays while it is asked for again; `ask` gives null where there is nothing to ask for. */
export function useLoaded<T>(ask: () => Promise<T> | null, dependencies: readonly unknown[]): Loaded<T> {
  const loaded: Signal<Loaded<T>> = useSignal<Loaded<T>>({ value: null, problem: null, isLoading: false });
  useEffect(() => {
    let isWanted = true;
    const show = (fields: Partial<Loaded<T>>): void => {
      if (isWanted) loaded.value = { ...loaded.peek(), isLoading: false, ...fields };
    };
    const answer = ask();
    if (answer === null) return;
    show({ isLoading: true });
    answer.then(
      (value) => show({ value, problem: null }),
      (error: unknown) => show({ problem: problemOf(error) }),
    );
    return () => {
      isWanted = false;
    };
  }, dependencies);
  return loaded.value;
}
