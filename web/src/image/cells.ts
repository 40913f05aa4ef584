// What is drawn in the pixels when they are large: their counts, and patterns where there is no number.

import { isSpecial, type SpecialKind, specialKind } from "./code16";
import type { Frame } from "./frame";
import { numberText } from "./reading";
import { rowScaleOf, type Size, toScreen, type View } from "./view";

/** Side of a pixel on the screen from which on it has a pattern, or its number. */
const PATTERN_FROM = 10;
const NUMBER_FROM = 28;

interface Cell {
  x: number;
  y: number;
  width: number;
  height: number;
}

type Context = CanvasRenderingContext2D;

/** A shape for each reason, so that they differ without colours too. */
function pattern(context: Context, kind: SpecialKind, { x, y, width, height }: Cell): void {
  const side = Math.min(width, height);
  const [near, far] = [side * 0.2, side * 0.8];
  context.moveTo(x + near, y + far);
  if (kind === "masked") context.lineTo(x + far, y + near);
  if (kind === "missing") {
    context.lineTo(x + far, y + near);
    context.moveTo(x + near, y + near);
    context.lineTo(x + far, y + far);
  }
  if (kind === "invalid") {
    context.moveTo(x + near, y + side / 2);
    context.lineTo(x + far, y + side / 2);
  }
  if (kind === "saturated") context.rect(x + near, y + near, far - near, far - near);
}

/** Black or white, whichever is easier to read on a colour of the table. */
function inkOn(colour: number): string {
  const [red, green, blue] = [colour & 255, (colour >> 8) & 255, (colour >> 16) & 255];
  return 0.299 * red + 0.587 * green + 0.114 * blue > 128 ? "#000" : "#fff";
}

function numberIn(context: Context, text: string, ink: string, { x, y, width, height }: Cell): void {
  const size = Math.min(16, 0.8 * height, (1.6 * width) / Math.max(2, text.length));
  // Numbers that nobody can read only disturb.
  if (size < 8) return;
  context.font = `${size}px ui-monospace, monospace`;
  context.fillStyle = ink;
  context.fillText(text, x + width / 2, y + height / 2);
}

export function drawCells(context: Context, frame: Frame, view: View, canvas: Size, lut: Uint32Array): void {
  const { header, codes } = frame;
  const [width, height] = [header.bin * view.scale, header.bin * rowScaleOf(view)];
  const side = Math.min(width, height);
  if (side < PATTERN_FROM) return;
  const corner = toScreen(view, { x: header.region[0], y: header.region[1] });
  const first = Math.max(0, Math.floor(-corner.x / width));
  const firstRow = Math.max(0, Math.floor(-corner.y / height));
  const end = Math.min(header.frame_columns, Math.ceil((canvas.width - corner.x) / width));
  const endRow = Math.min(header.frame_rows, Math.ceil((canvas.height - corner.y) / height));
  const hasNumbers = width >= NUMBER_FROM && header.bin === 1;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.beginPath();
  for (let row = firstRow; row < endRow; row++) {
    for (let column = first; column < end; column++) {
      const index = row * header.frame_columns + column;
      const code = codes[index] as number;
      const cell = { x: corner.x + column * width, y: corner.y + row * height, width, height };
      if (isSpecial(code)) pattern(context, specialKind(code), cell);
      else if (hasNumbers) {
        const value = frame.value(index);
        if (value.kind === "number")
          numberIn(context, numberText(value.value, header), inkOn(lut[code] as number), cell);
      }
    }
  }
  context.lineWidth = Math.min(3, side / 8);
  context.strokeStyle = "rgba(0, 0, 0, 0.85)";
  context.stroke();
}
