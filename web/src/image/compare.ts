// The same pixels in two images.

import type { Value } from "./code16";
import type { Frame } from "./frame";
import type { Point } from "./geometry";
import { numberText, valueText } from "./reading";
import { indexAt } from "./viewer";

interface Square {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The pixels of the dot of a frame at this place. */
function squareAt({ header }: Frame, { x, y }: Point): Square {
  const { bin, region } = header;
  const left = region[0] + Math.floor((Math.floor(x) - region[0]) / bin) * bin;
  const top = region[1] + Math.floor((Math.floor(y) - region[1]) / bin) * bin;
  return {
    left,
    top,
    right: Math.min(left + bin, region[0] + region[2]),
    bottom: Math.min(top + bin, region[1] + region[3]),
  };
}

const SPECIAL_ORDER = ["missing", "invalid", "masked"] as const;

/** The value of several pixels as frames have it (docs/live.md). */
export function largestOf(values: readonly Value[]): Value | null {
  if (values.some(({ kind }) => kind === "saturated")) return { kind: "saturated" };
  const numbers = values.flatMap((value) => (value.kind === "number" ? [value.value] : []));
  if (numbers.length > 0) return { kind: "number", value: numbers.reduce((a, b) => Math.max(a, b)) };
  const kind = SPECIAL_ORDER.find((one) => values.some((value) => value.kind === one));
  return kind ? { kind } : null;
}

/** The value that these pixels have in a frame; null if it does not have them, or not as fine. */
function valueIn(frame: Frame, square: Square): Value | null {
  const { bin } = frame.header;
  if (square.left % bin !== 0 || square.top % bin !== 0) return null;
  const values: Value[] = [];
  for (let y = square.top; y < square.bottom; y += bin) {
    for (let x = square.left; x < square.right; x += bin) {
      const index = indexAt(frame, { x, y });
      if (index === null) return null;
      values.push(frame.value(index));
    }
  }
  const isFiner = square.right - square.left >= bin || square.right === frame.header.columns;
  return isFiner ? largestOf(values) : null;
}

export interface Comparison {
  reference: string;
  /** An en dash where one of the two has no number. */
  difference: string;
}

/** What the reference has under the pointer, and by how much the image differs from it. */
export function compared(shown: Frame, reference: Frame, point: Point): Comparison {
  const index = indexAt(shown, point);
  const now = index === null ? null : shown.value(index);
  const before = valueIn(reference, squareAt(shown, point));
  const difference =
    now?.kind === "number" && before?.kind === "number" ? signed(now.value - before.value, shown) : "–";
  return { reference: valueText(before, reference.header), difference };
}

function signed(difference: number, shown: Frame): string {
  const size = numberText(Math.abs(difference), shown.header);
  if (difference === 0) return "0";
  return difference > 0 ? `+${size}` : `−${size}`;
}
