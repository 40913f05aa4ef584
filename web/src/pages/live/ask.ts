// Asks the service for a result of all images of the newest run.

import { type Api, ApiProblem, type HitRate, type ResultName, type ResultPlot } from "../../api/client";
import type { DetectorStatus } from "../../live/types";
import { choicesOf, chosenOf } from "./history";
import { HIT_RATE } from "./seen";

export interface Answer {
  /** What can be plotted; null if the service is older than this page and does not say. */
  choices: ResultName[] | null;
  plot: ResultPlot | null;
  hitRate: HitRate | null;
}

type Asked = Pick<Api, "results" | "hitRate">;

/** `last`: what was answered before in the same run, which makes a question for the names needless. */
export async function askResults(
  api: Asked,
  detector: string,
  wanted: string | null,
  last: Answer | null,
): Promise<Answer> {
  const names = last?.plot?.results ?? (await namesOf(api, detector));
  if (names === null) return { choices: null, plot: null, hitRate: null };
  const choices = choicesOf(names);
  const answer: Answer = { choices, plot: null, hitRate: null };
  const chosen = chosenOf(
    choices.map(({ name }) => name),
    wanted,
  );
  if (chosen === null) return answer;
  if (chosen === HIT_RATE) return { ...answer, hitRate: await api.hitRate(detector) };
  const plot = await api.results(detector, chosen);
  return { ...answer, choices: choicesOf(plot.results), plot };
}

async function namesOf(api: Asked, detector: string): Promise<ResultName[] | null> {
  try {
    return (await api.results(detector, null)).results;
  } catch (error) {
    if (error instanceof ApiProblem && error.code === "not_found") return null;
    throw error;
  }
}

/** Changes whenever there may be something new, beside the images of a run that is going. */
export function momentOf(status: DetectorStatus | null): string | null {
  return status && `${status.state} ${status.run}`;
}

export const isGoing = (moment: string): boolean => moment.startsWith("running ");
