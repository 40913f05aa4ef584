// What is under the pointer, in words.

import type { Value } from "./code16";
import { SPECIAL_WORDS } from "./colours";
import type { Frame, FrameHeader } from "./frame";
import { type Point, type Scattering, scattering } from "./geometry";
import { indexAt } from "./viewer";

export interface Reading {
  column: number;
  row: number;
  /** Null where the frame has no value. */
  kind: Value["kind"] | null;
  /** What stands before the value of several pixels. */
  before: string;
  value: string;
  scattering: Scattering | null;
}

/** The largest number of a frame of whole numbers, of which larger ones are made too. */
const COUNT_MOST = 2147483392;

/** A number with as many digits as it is known by. */
export function numberText(value: number, header: FrameHeader): string {
  const isRounded = header.format === "code16" && header.bin > 1;
  if (header.coding === "count") {
    // Frames have no larger numbers.
    if (header.format === "int32" && header.dtype !== "int32" && Math.abs(value) >= COUNT_MOST) {
      return `${value} or ${value > 0 ? "more" : "less"}`;
    }
    if (isRounded && value <= -4096) return "-4096 or less";
    return isRounded && value > 20464 ? `about ${Number(value.toPrecision(4))}` : String(value);
  }
  return isRounded ? `about ${Number(value.toPrecision(3))}` : String(Number(value.toPrecision(7)));
}

/** A number, or why there is none. */
export function valueText(value: Value | null, header: FrameHeader): string {
  if (value === null) return "–";
  return value.kind === "number" ? numberText(value.value, header) : SPECIAL_WORDS[value.kind];
}

/** Null outside of the image. */
export function readingAt(frame: Frame, point: Point): Reading | null {
  const { header } = frame;
  const [column, row] = [Math.floor(point.x), Math.floor(point.y)];
  if (!(column >= 0 && row >= 0 && column < header.columns && row < header.rows)) return null;
  const index = indexAt(frame, point);
  const value = index === null ? null : frame.value(index);
  const before =
    header.bin === 1 || value === null ? "" : `${header.range ? "mean" : "largest"} of ${header.bin} × ${header.bin}: `;
  return {
    column,
    row,
    kind: value?.kind ?? null,
    before,
    value: before + valueText(value, header),
    scattering: header.geometry && scattering(header.geometry, point),
  };
}
