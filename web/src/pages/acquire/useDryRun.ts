// What the service says of the run that is being typed.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Api, ArmRequest, DryRun } from "../../api/client";

/** Nobody types so slowly that the service would be asked at each key. */
const PAUSE_MS = 300;

export interface Asked {
  answer: DryRun | null;
  /** The answer is of an earlier request. */
  isOld: boolean;
}

interface Question {
  /** Null while nobody can be asked. */
  detector: string | null;
  request: ArmRequest;
  /** Changes when the answer may be another one although the request is the same. */
  state: string;
}

/** The newest question wins; without an answer nothing is said. */
export function useDryRun(api: Api, { detector, request, state }: Question): Asked {
  const asked = useSignal<Asked>({ answer: null, isOld: false });
  const text = JSON.stringify(request);
  useEffect(() => {
    if (detector === null) return;
    let isNewest = true;
    const show = (fields: Partial<Asked>): void => {
      if (isNewest) asked.value = { ...asked.peek(), ...fields };
    };
    show({ isOld: true });
    const timer = setTimeout(() => {
      api.dryRun(detector, request).then(
        (answer) => show({ answer, isOld: false }),
        () => show({ answer: null, isOld: false }),
      );
    }, PAUSE_MS);
    return () => {
      isNewest = false;
      clearTimeout(timer);
    };
  }, [api, detector, text, state]);
  return asked.value;
}
