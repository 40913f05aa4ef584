// What plots share: the colours of the page, the look of the axes, marks.

import type uPlot from "uplot";

/** A colour of theme.css, as it is when it is asked for. */
export const shade = (name: string) => (): string =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#808080";

export const lineColour = shade("--accent");

const FONT = "14px system-ui, sans-serif";
const text = shade("--text");
const grid = { stroke: shade("--line"), width: 1 };

export const plotAxis = { stroke: text, grid, ticks: grid, font: FONT, labelFont: FONT };

/** Places of the numbers that have no neighbour: a line does not show them. */
export function aloneIn(values: readonly (number | null)[]): number[] {
  const places: number[] = [];
  for (let n = 0; n < values.length; n++) {
    if (values[n] !== null && (values[n - 1] ?? null) === null && (values[n + 1] ?? null) === null) places.push(n);
  }
  return places;
}

const MARK_PX = 8;

/** Triangles at the bottom of the points that have a count; where they would lie on each other, the first stands for all. */
export function drawMarks(plot: uPlot, axis: readonly number[], counts: readonly number[]): void {
  const { ctx, bbox } = plot;
  const size = MARK_PX * devicePixelRatio;
  const bottom = bbox.top + bbox.height;
  let last = Number.NEGATIVE_INFINITY;
  ctx.save();
  ctx.fillStyle = text();
  ctx.beginPath();
  for (let n = 0; n < counts.length; n++) {
    if (!counts[n]) continue;
    const x = plot.valToPos(axis[n] as number, "x", true);
    if (x - last < size) continue;
    last = x;
    ctx.moveTo(x, bottom - size);
    ctx.lineTo(x + size / 2, bottom);
    ctx.lineTo(x - size / 2, bottom);
    ctx.closePath();
  }
  ctx.fill();
  ctx.restore();
}
