// What the plots ask of the service, each once, however many parts of the page show it.

import { type Signal, signal, useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { HitRate, ResultPlot } from "../../api/client";
import { isCurrent, type Services, shownStatus } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import type { Viewer } from "../../image/viewer";
import { type Answer, askResults } from "./ask";
import type { AxisKind } from "./history";
import { keepNew, momentOf, NOTHING_YET, type Renewed } from "./renew";

/** What is known, if it is of the detector that is shown. */
function shownOf<T>({ connection }: Services, state: Signal<Renewed<T>>): Renewed<T> {
  return state.value.detector === connection.detector.value ? state.value : NOTHING_YET;
}

export function useResults(services: Services, wanted: string | null, axis: AxisKind): Renewed<Answer> {
  const state = useSignal<Renewed<Answer>>(NOTHING_YET);
  useEffect(
    () =>
      keepNew<Answer>(
        services,
        (detector, last) => askResults(services.api, detector, { result: wanted, axis }, last),
        state,
      ),
    [services, wanted, axis, state],
  );
  return shownOf(services, state);
}

/** The one question for the rate of hits; asked while somebody shows it. */
class HitRatePoll {
  readonly state = signal<Renewed<HitRate>>(NOTHING_YET);
  private users = 0;
  private stop: (() => void) | null = null;

  constructor(private readonly services: Services) {}

  join(): () => void {
    this.users += 1;
    this.stop ??= keepNew<HitRate>(this.services, (detector) => this.services.api.hitRate(detector), this.state);
    return () => {
      this.users -= 1;
      if (this.users > 0) return;
      this.stop?.();
      this.stop = null;
    };
  }
}

const polls = new WeakMap<Services, HitRatePoll>();

export function useHitRate(services: Services): Renewed<HitRate> {
  const poll = polls.get(services) ?? new HitRatePoll(services);
  polls.set(services, poll);
  useEffect(() => poll.join(), [poll]);
  return shownOf(services, poll.state);
}

/** What the lists of the results of the shown image are of; null for files, and as long as it is not known. */
export function useListFacts({ connection, api }: Services, viewer: Viewer): ResultPlot | null {
  const detector = connection.detector.value;
  const mayAsk = useComputed(() => isCurrent(connection)).value;
  const moment = useComputed(() => momentOf(shownStatus(connection))).value;
  const run = useComputed(() => viewer.header.value?.run ?? null).value;
  const loaded = useLoaded(
    () => (detector === null || run === null || !mayAsk ? null : api.results(detector, null)),
    [api, detector, run, moment, mayAsk],
  );
  return loaded.value?.detector === detector && run !== null ? loaded.value : null;
}
