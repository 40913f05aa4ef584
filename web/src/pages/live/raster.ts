// Results of a grid scan at their places.

import type { HitRate, ResultPlot } from "../../api/client";

/** Name of the result that has the column of each image ([image_metadata] raster_columns). */
export const RASTER_COLUMN = "raster_column";

/** How the images lie: row by row. */
export interface Raster {
  columns: number;
  /** Null: as many as there are images for. */
  rows: number | null;
  /** Every second row goes backwards. */
  isSnake: boolean;
}

/** A number for each place, row by row; NaN where there is none. */
export interface Cells {
  columns: number;
  rows: number;
  values: Float64Array;
  /** Images in sequence that share one number. */
  imagesOfValue: number;
  /** What is not shown, or null. */
  note: string | null;
}

export const CELLS_MAX = 1_000_000;
export const SIDE_MAX = 4096;

/** The raster by the columns of the images; null without them. Until the first row is complete, it is as long as it is. */
export function measuredRaster(places: ResultPlot | null): Raster | null {
  if (!places) return null;
  const { first_image, images, lowest, highest } = places;
  const last = highest.reduce<number>((most, column) => Math.max(most, column ?? 0), -1);
  if (last < 0) return null;
  const columns = last + 1;
  // A bin within the second row says whether that goes backwards.
  const bin = first_image.findIndex(
    (first, n) =>
      columns > 1 && first >= columns && first + (images[n] ?? 0) <= 2 * columns && (highest[n] ?? null) !== null,
  );
  const along = (first_image[bin] ?? 0) - columns;
  const isSnake = bin >= 0 && highest[bin] === columns - 1 - along && lowest[bin] !== along;
  return { columns, rows: null, isSnake };
}

export function imageOfCell({ columns, isSnake }: Raster, row: number, column: number): number {
  return row * columns + (isSnake && row % 2 === 1 ? columns - 1 - column : column);
}

export function cellOfImage({ columns, isSnake }: Raster, image: number): { row: number; column: number } {
  const row = Math.floor(image / columns);
  const along = image % columns;
  return { row, column: isSnake && row % 2 === 1 ? columns - 1 - along : along };
}

/** As many rows as can be drawn. */
function drawable(columns: number, rows: number): { rows: number; note: string | null } {
  const most = Math.max(1, Math.min(SIDE_MAX, Math.floor(CELLS_MAX / columns)));
  return rows > most ? { rows: most, note: `only the first ${most} of ${rows} rows` } : { rows, note: null };
}

export function cellsOfResults(plot: ResultPlot, raster: Raster): Cells | null {
  const { first_image, bin_images, images, mean } = plot;
  const { columns } = raster;
  if (columns < 1 || columns > SIDE_MAX) return null;
  const end = (first_image.at(-1) ?? 0) + (images.at(-1) ?? 0);
  const { rows, note } = drawable(columns, raster.rows ?? Math.ceil(end / columns));
  const values = new Float64Array(columns * rows).fill(Number.NaN);
  for (const [bin, first] of first_image.entries()) {
    const value = mean[bin] ?? null;
    if (value === null) continue;
    for (let image = first; image < first + bin_images && image < end; image++) {
      const { row, column } = cellOfImage(raster, image);
      if (row < rows) values[row * columns + column] = value;
    }
  }
  return { columns, rows, values, imagesOfValue: bin_images, note };
}

/** Hits in percent; the service says their places itself. */
export function cellsOfHits({ raster }: HitRate, { columns, rows: wanted }: Raster): Cells | null {
  if (!raster || columns < 1 || columns > SIDE_MAX) return null;
  const highest = raster.row.reduce((most, row) => Math.max(most, row), -1);
  const { rows, note } = drawable(columns, wanted ?? highest + 1);
  const values = new Float64Array(columns * rows).fill(Number.NaN);
  for (const [place, row] of raster.row.entries()) {
    const [column, analysed] = [raster.column[place] ?? columns, raster.analysed[place] ?? 0];
    if (row < rows && column < columns && analysed > 0) {
      values[row * columns + column] = (100 * (raster.hits[place] ?? 0)) / analysed;
    }
  }
  const lost = raster.not_counted > 0 ? `${raster.not_counted} images lie beyond the raster that is counted` : null;
  return { columns, rows, values, imagesOfValue: 1, note: [note, lost].filter(Boolean).join("; ") || null };
}

/** The places in the order of their images, for the table. */
export function pointsOfCells(
  { columns, rows, values }: Cells,
  raster: Raster,
): { images: number[]; values: (number | null)[] } {
  const images = Array.from({ length: columns * rows }, (_, image) => image);
  const numbers = images.map((image) => {
    const { row, column } = cellOfImage(raster, image);
    const value = values[row * columns + column] as number;
    return Number.isNaN(value) ? null : value;
  });
  return { images, values: numbers };
}

/** The lowest and the highest number; null if there is none. */
export function rangeOf(values: Float64Array): [low: number, high: number] | null {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : null;
}
