// A map of a grid scan; a click on a place gives it.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { colourAt } from "../../image/colours";
import { shortNumber } from "./numbers";
import { type Cells, imageOfCell, type Raster, rangeOf } from "./raster";

interface MapProps {
  cells: Cells;
  raster: Raster;
  /** What the numbers are. */
  name: string;
  summary: string;
  height: number;
  onPick: (image: number) => void;
}

const COLOURS = Array.from({ length: 256 }, (_, n) => colourAt("viridis", n / 255));

function draw(canvas: HTMLCanvasElement, { columns, rows, values }: Cells, range: [number, number]): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  canvas.width = columns;
  canvas.height = rows;
  const picture = context.createImageData(columns, rows);
  const [low, high] = range;
  for (let n = 0; n < values.length; n++) {
    const value = values[n] as number;
    // Places without a number stay as the page is.
    if (Number.isNaN(value)) continue;
    const place = high > low ? (value - low) / (high - low) : 1;
    const [red, green, blue] = COLOURS[Math.round(255 * place)] as [number, number, number];
    picture.data.set([red, green, blue, 255], 4 * n);
  }
  context.putImageData(picture, 0, 0);
}

function drawLegend(canvas: HTMLCanvasElement): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  for (const [n, colour] of COLOURS.entries()) {
    context.fillStyle = `rgb(${colour.join(" ")})`;
    context.fillRect(n, 0, 1, canvas.height);
  }
}

function Legend({ range, name }: { range: [number, number]; name: string }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (canvas.current) drawLegend(canvas.current);
  }, []);
  return (
    <div class="raster-legend">
      <span>{name}</span>
      <span>
        {shortNumber(range[0])} <canvas ref={canvas} width={256} height={12} /> {shortNumber(range[1])}
      </span>
    </div>
  );
}

interface Place {
  row: number;
  column: number;
}

export function RasterMap({ cells, raster, name, summary, height, onPick }: MapProps): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const under = useSignal<Place | null>(null);
  const range = rangeOf(cells.values);
  useEffect(() => {
    if (canvas.current && range) draw(canvas.current, cells, range);
  }, [cells, range?.[0], range?.[1]]);
  if (!range) return <p class="soft">No place of the raster has a number for {name}.</p>;

  const placeOf = (event: MouseEvent): Place | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box) return null;
    const column = Math.floor(((event.clientX - box.left) / box.width) * cells.columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * cells.rows);
    return column >= 0 && row >= 0 && column < cells.columns && row < cells.rows ? { row, column } : null;
  };
  const pick = (event: MouseEvent) => {
    const place = placeOf(event);
    if (place) onPick(imageOfCell(raster, place.row, place.column));
  };
  const size = Math.max(1, Math.min(40, height / cells.rows, 600 / cells.columns));
  return (
    <div class="raster">
      {/* Each place is a row of the table, too, with a button for the keyboard. */}
      <canvas
        ref={canvas}
        class="raster-map"
        role="img"
        aria-label={summary}
        style={{ width: `${cells.columns * size}px`, height: `${cells.rows * size}px` }}
        onClick={pick}
        onPointerMove={(event) => {
          under.value = placeOf(event);
        }}
        onPointerLeave={() => {
          under.value = null;
        }}
      />
      <div class="raster-words">
        <Legend range={range} name={name} />
        <p>{under.value ? placeText(under.value, cells, raster) : "A click on a place shows its image."}</p>
        {cells.imagesOfValue > 1 && (
          <p class="soft">{cells.imagesOfValue} images in sequence share one number, their mean.</p>
        )}
        {cells.note && <p class="soft">{cells.note}.</p>}
      </div>
    </div>
  );
}

function placeText({ row, column }: Place, cells: Cells, raster: Raster): string {
  const value = cells.values[row * cells.columns + column];
  return `row ${row}, column ${column}, image ${imageOfCell(raster, row, column)}: ${shortNumber(value)}`;
}
