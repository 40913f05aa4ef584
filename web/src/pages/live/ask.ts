// Asks the service for a result of all images of the newest run.

import { type Api, ApiProblem, type ResultName, type ResultPlot } from "../../api/client";
import { ANGLE } from "./angles";
import { type AxisKind, choicesOf, chosenOf } from "./history";
import { RASTER_COLUMN } from "./raster";
import { HIT_RATE } from "./seen";

export interface Answer {
  /** What can be plotted; null if the service is older than this page and does not say. */
  choices: ResultName[] | null;
  /** Null for the rate of hits, which is asked for elsewhere. */
  plot: ResultPlot | null;
  /** What the plot goes along, if it goes along a result and images have that: angles, or columns of a raster. */
  along: ResultPlot | null;
}

interface Wanted {
  result: string | null;
  axis: AxisKind;
}

/** The result that a plot goes along. */
const ALONG: Partial<Record<AxisKind, string>> = { angle: ANGLE, raster: RASTER_COLUMN };

type Asked = Pick<Api, "results">;

/** `last`: what was answered before in the same run, which makes a question for the names needless. */
export async function askResults(
  api: Asked,
  detector: string,
  { result, axis }: Wanted,
  last: Answer | null,
): Promise<Answer> {
  const names = last?.plot?.results ?? (await namesOf(api, detector));
  if (names === null) return { choices: null, plot: null, along: null };
  const choices = choicesOf(names);
  const wanted = names.find(({ name }) => name === ALONG[axis]);
  const chosen = chosenOf(
    choices.map(({ name }) => name),
    result,
  );
  if (chosen === null) return { choices, plot: null, along: null };
  const along = wanted ? await api.results(detector, wanted.name) : null;
  if (chosen === HIT_RATE) return { choices, plot: null, along };
  const plot = await api.results(detector, chosen);
  return { choices: choicesOf(plot.results), plot, along };
}

async function namesOf(api: Asked, detector: string): Promise<ResultName[] | null> {
  try {
    return (await api.results(detector, null)).results;
  } catch (error) {
    if (error instanceof ApiProblem && error.code === "not_found") return null;
    throw error;
  }
}
