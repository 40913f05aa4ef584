// A result of all images of a run as the service gives it, and what the plot shows of it.

import type { HitRate, ResultName, ResultPlot } from "../../api/client";
import type { Ring } from "../../live/types";
import type { Angles } from "./angles";
import { shortNumber } from "./numbers";
import type { Raster } from "./raster";
import { HIT_RATE } from "./seen";

export type AxisKind = "image" | "time" | "angle" | "raster";

const AXIS_KINDS: readonly unknown[] = ["image", "time", "angle", "raster"];

/** What of a raster was given by hand; the rest is as the images say it. */
export type RasterChoice = { [name in keyof Raster]: Raster[name] | null };

const NO_RASTER: RasterChoice = { columns: null, rows: null, isSnake: null };

/** What somebody chose; kept as long as the tab. */
export interface Choice {
  /** Null: what is sensible for the run. */
  result: string | null;
  axis: AxisKind;
  raster: RasterChoice;
  isHidden: boolean;
}

const count = (value: unknown): number | null =>
  Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : null;

function readRaster(value: unknown): RasterChoice {
  const { columns, rows, isSnake } = (value ?? {}) as Record<string, unknown>;
  return { columns: count(columns), rows: count(rows), isSnake: typeof isSnake === "boolean" ? isSnake : null };
}

/** The raster as it was given by hand, else as the images say it; null if nobody says how many columns it has. */
export function chosenRaster(choice: RasterChoice, measured: Raster | null): Raster | null {
  const columns = choice.columns ?? measured?.columns;
  if (!columns) return null;
  return { columns, rows: choice.rows, isSnake: choice.isSnake ?? measured?.isSnake ?? false };
}

const FIRST_CHOICES = ["spots", "max_value", "sum_value"];

export function readChoice(text: string | null): Choice {
  const choice: Choice = { result: null, axis: "image", raster: NO_RASTER, isHidden: false };
  try {
    const { result, axis, raster, isHidden } = JSON.parse(text ?? "{}") as Record<string, unknown>;
    if (typeof result === "string") choice.result = result;
    if (AXIS_KINDS.includes(axis)) choice.axis = axis as AxisKind;
    choice.raster = readRaster(raster);
    choice.isHidden = isHidden === true;
  } catch {
    // What cannot be read counts as not chosen.
  }
  return choice;
}

/** All that can be plotted; the rate of hits is made of results of all images, so it comes first. */
export function choicesOf(names: readonly ResultName[]): ResultName[] {
  if (!names.some(({ name }) => name === "is_hit")) return [...names];
  return [{ name: HIT_RATE, unit: "%", meaning: "hits among the images that were analysed, over time" }, ...names];
}

/** What is plotted: what was chosen, if this run has it. */
export function chosenOf(names: readonly string[], wanted: string | null): string | null {
  if (wanted !== null && names.includes(wanted)) return wanted;
  return FIRST_CHOICES.find((name) => names.includes(name)) ?? names[0] ?? null;
}

export type Numbers = (number | null)[];

/** Lists with an entry for each point. */
export interface Points {
  axis: number[];
  mean: Numbers;
  band: { lowest: Numbers; highest: Numbers } | null;
  /** Images without results. */
  without: number[];
  /** True where the axis falls from image to image, so that the points are in the other order. */
  isReversed: boolean;
}

/** What goes along a plot never goes back, and points without a number stand where the one before stands: a plot needs
 * both. */
function rising(numbers: Numbers): number[] {
  let last = numbers.find((number) => number !== null) ?? 0;
  return numbers.map((number) => {
    last = Math.max(last, number ?? last);
    return last;
  });
}

function timesOf(times: Numbers): number[] {
  return rising([0, ...times]).slice(1);
}

function along(plot: ResultPlot, axis: AxisKind, angles: Angles | null): Numbers {
  if (axis === "angle" && angles) return plot.first_image.map((image) => angles.of(image));
  return axis === "time" ? timesOf(plot.time_s) : plot.first_image;
}

function isFalling(numbers: Numbers): boolean {
  const known = numbers.filter((number) => number !== null);
  return (known.at(-1) ?? 0) < (known[0] ?? 0);
}

export function pointsOf(plot: ResultPlot, axis: AxisKind, angles: Angles | null = null): Points {
  const { bin_images, mean, lowest, highest, without } = plot;
  const numbers = along(plot, axis, angles);
  const isReversed = isFalling(numbers);
  const inOrder = <T>(list: T[]): T[] => (isReversed ? [...list].reverse() : list);
  return {
    axis: rising(inOrder(numbers)),
    mean: inOrder(mean),
    // One image has one number.
    band: bin_images > 1 ? { lowest: inOrder(lowest), highest: inOrder(highest) } : null,
    without: inOrder(without),
    isReversed,
  };
}

/** The place in the lists of the service of a point of the plot. */
export const placeOfPoint = ({ axis, isReversed }: Points, point: number): number =>
  isReversed ? axis.length - 1 - point : point;

export function hitRatePoints({ bin_s, analysed, hits }: HitRate): Points {
  return {
    axis: analysed.map((_, bin) => bin * bin_s),
    mean: analysed.map((images, bin) => (images > 0 ? (100 * (hits[bin] ?? 0)) / images : null)),
    band: null,
    without: analysed.map(() => 0),
    isReversed: false,
  };
}

const total = (counts: readonly number[]): number => counts.reduce((sum, count) => sum + count, 0);

/** In one line, for those who do not see the plot, too. */
function rangeText({ mean, band }: Points, { name, unit }: ResultName): string {
  const known = (numbers: Numbers) => numbers.filter((number) => number !== null);
  const last = known(mean).at(-1);
  if (last === undefined) return `no image has a number for ${name}`;
  const text = (value: number) => `${shortNumber(value)}${unit === "" ? "" : ` ${unit}`}`;
  const least = known(band?.lowest ?? mean).reduce((a, b) => Math.min(a, b));
  const most = known(band?.highest ?? mean).reduce((a, b) => Math.max(a, b));
  return least === most
    ? `${name} ${text(last)}`
    : `${name}: newest ${text(last)}, from ${shortNumber(least)} to ${text(most)}`;
}

const plural = (count: number, word: string) => `${count} ${word}${count === 1 ? "" : "s"}`;

export function plotSummary(plot: ResultPlot, points: Points, name: ResultName): string {
  const images = total(plot.images);
  if (images === 0) return "no image of the newest run yet";
  const bins = plot.bin_images > 1 ? `, a point for each ${plot.bin_images} (line: mean, band: lowest to highest)` : "";
  const without = total(plot.without);
  const lost = without > 0 ? `; ▲ ${without} without results: lost or not analysed` : "";
  return `${rangeText(points, name)}; ${plural(images, "image")} of the newest run${bins}${lost}`;
}

export function hitRateSummary(rate: HitRate, points: Points, name: ResultName): string {
  const [images, hits] = [total(rate.analysed), total(rate.hits)];
  if (images === 0) return "no image of the newest run was analysed yet";
  const all = `${hits} of ${plural(images, "analysed image")}`;
  return `${rangeText(points, name)}; ${all}, a point for each ${shortNumber(rate.bin_s)} s`;
}

/** The image that a point stands for, and whether it can still be shown. */
export function imageOfPoint(
  { first_image, bin_images }: ResultPlot,
  place: number,
  ring: Ring | null,
): { image: number; isKept: boolean } | null {
  const first = first_image[place];
  if (first === undefined) return null;
  // What is newer than the newest that is known came since, and is kept.
  const isKept = ring !== null && first + bin_images > ring.first;
  return { image: isKept ? Math.max(first, ring.first) : first, isKept };
}

/** An image by its number, and whether it can still be shown. */
export function keptImage(image: number, ring: Ring | null): { image: number; isKept: boolean } {
  return { image, isKept: ring !== null && image >= ring.first };
}
