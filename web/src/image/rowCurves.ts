// The rows of an image as curves: counts against pixel.

import type { Frame } from "./frame";

/** Room for the numbers of the axis, at the left of the curves and of the rows below them. */
export const CURVES_LEFT_PX = 84;
export const CURVES_RIGHT_PX = 12;

export interface RowCurves {
  /** Column of each point. */
  columns: number[];
  /** Of each row the numbers, null where there is none. */
  rows: (number | null)[][];
  /** How many rows have no number there. */
  without: number[];
}

export function curvesOf({ header, value }: Frame): RowCurves {
  const { bin, region, frame_columns, frame_rows } = header;
  const columns = Array.from({ length: frame_columns }, (_, n) => region[0] + n * bin);
  const rows = Array.from({ length: frame_rows }, (_, row) =>
    columns.map((_, n) => {
      const found = value(row * frame_columns + n);
      return found.kind === "number" ? found.value : null;
    }),
  );
  const without = columns.map((_, n) => rows.filter((row) => row[n] === null).length);
  return { columns, rows, without };
}

/** In words, for who does not see the curves. */
export function curvesText({ columns, rows }: RowCurves): string {
  let best: { row: number; column: number; value: number } | null = null;
  for (const [row, values] of rows.entries()) {
    for (const [n, value] of values.entries()) {
      if (value !== null && (best === null || value > best.value)) best = { row, column: columns[n] as number, value };
    }
  }
  if (!best) return "Counts against pixel: no pixel has a number";
  return `Counts against pixel: highest ${best.value} at x ${best.column} y ${best.row}`;
}

/** The row whose curve is nearest to a height, given where each of them is; without any, the first. */
export function nearestRow(heights: readonly (number | null)[], at: number): number {
  const far = (row: number) => Math.abs((heights[row] ?? Number.POSITIVE_INFINITY) - at);
  return heights.reduce<number>((best, _, row) => (far(row) < far(best) ? row : best), 0);
}
