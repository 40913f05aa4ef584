// Makes a frame smaller without losing bright pixels. The rules are those of docs/live.md for squares of pixels.

import { CODE_FIRST, CODE_INVALID, CODE_MASKED, CODE_MISSING } from "./code16";

/** Codes of a frame of this size. */
export interface Codes {
  codes: Uint16Array;
  columns: number;
  rows: number;
}

function specialOf(from: Codes, left: number, top: number, right: number, bottom: number): number {
  let isInvalid = false;
  for (let row = top; row < bottom; row++) {
    for (let column = left; column < right; column++) {
      const code = from.codes[row * from.columns + column] as number;
      if (code === CODE_MISSING) return CODE_MISSING;
      isInvalid ||= code !== CODE_MASKED;
    }
  }
  return isInvalid ? CODE_INVALID : CODE_MASKED;
}

/** Each square of `factor` times `factor` codes, or of fewer rows, as its largest one; in `memory` if that has the right
 * size. */
export function pooled(from: Codes, factor: number, memory: Uint16Array | null, rowFactor = factor): Codes {
  const columns = Math.ceil(from.columns / factor);
  const rows = Math.ceil(from.rows / rowFactor);
  const codes = memory?.length === columns * rows ? memory : new Uint16Array(columns * rows);
  for (let row = 0; row < rows; row++) {
    const top = row * rowFactor;
    const bottom = Math.min(from.rows, top + rowFactor);
    for (let column = 0; column < columns; column++) {
      const left = column * factor;
      const right = Math.min(from.columns, left + factor);
      let largest = 0;
      for (let y = top; y < bottom; y++) {
        const line = y * from.columns;
        for (let x = line + left; x < line + right; x++) {
          const code = from.codes[x] as number;
          if (code > largest) largest = code;
        }
      }
      if (largest < CODE_FIRST) largest = specialOf(from, left, top, right, bottom);
      codes[row * columns + column] = largest;
    }
  }
  return { codes, columns, rows };
}

/** By how much a frame must shrink so that none of its dots falls between those of the screen. */
export function shrinkFactor(dotOnScreen: number): number {
  return Math.max(1, Math.ceil(1 / dotOnScreen - 1e-6));
}
