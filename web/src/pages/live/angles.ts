// The angle of the sample at each image, as the service has it among the results ([image_metadata] angle = true).

import type { ResultName, ResultPlot } from "../../api/client";

/** Name of the result. */
export const ANGLE = "angle_deg";

export interface Angles {
  /** Of the first image of a bin. */
  of: (image: number) => number | null;
}

export function anglesOf(measured: ResultPlot | null): Angles | null {
  if (!measured) return null;
  const known = new Map(measured.first_image.map((image, bin) => [image, measured.mean[bin] ?? null]));
  return { of: (image) => known.get(image) ?? null };
}

/** Whether a plot can go along the angle. */
export const hasAngles = (choices: readonly ResultName[]): boolean => choices.some(({ name }) => name === ANGLE);
