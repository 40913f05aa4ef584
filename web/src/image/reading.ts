// What is under the pointer, in words.

import { SPECIAL_WORDS } from "./colours";
import type { Frame, FrameHeader } from "./frame";
import { type Point, type Scattering, scattering } from "./geometry";
import { indexAt } from "./viewer";

export interface Reading {
  column: number;
  row: number;
  value: string;
  scattering: Scattering | null;
}

/** A number with as many digits as it is known by. */
export function numberText(value: number, header: FrameHeader): string {
  const isRounded = header.format === "code16" && header.bin > 1;
  if (header.coding === "count") {
    if (isRounded && value <= -4096) return "-4096 or less";
    return isRounded && value > 20464 ? `about ${Number(value.toPrecision(4))}` : String(value);
  }
  return isRounded ? `about ${Number(value.toPrecision(3))}` : String(Number(value.toPrecision(7)));
}

function valueText(frame: Frame, index: number): string {
  const value = frame.value(index);
  const text = value.kind === "number" ? numberText(value.value, frame.header) : SPECIAL_WORDS[value.kind];
  const { bin } = frame.header;
  return bin === 1 ? text : `largest of ${bin} × ${bin}: ${text}`;
}

/** Null outside of the image. */
export function readingAt(frame: Frame, point: Point): Reading | null {
  const { header } = frame;
  const [column, row] = [Math.floor(point.x), Math.floor(point.y)];
  if (!(column >= 0 && row >= 0 && column < header.columns && row < header.rows)) return null;
  const index = indexAt(frame, point);
  return {
    column,
    row,
    value: index === null ? "–" : valueText(frame, index),
    scattering: header.geometry && scattering(header.geometry, point),
  };
}
