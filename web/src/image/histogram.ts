// How often which value occurs in a frame, on an axis on which one photon and a million both have a place.

import { CODE_FIRST, CODE_SATURATED, CODES, type Coding, numbersOfCodes, rangeOfCoding } from "./code16";

/** An axis from `low` to `high`; values are bent like a logarithm with a zero. */
export interface Axis {
  low: number;
  high: number;
  unit: number;
}

const bent = (value: number, unit: number) => Math.sign(value) * Math.log1p(Math.abs(value) / unit);
const straight = (place: number, unit: number) => Math.sign(place) * Math.expm1(Math.abs(place)) * unit;

/** Where a value is on the axis, 0 to 1 within it. */
export function placeOnAxis(value: number, { low, high, unit }: Axis): number {
  const begin = bent(low, unit);
  return (bent(value, unit) - begin) / (bent(high, unit) - begin);
}

export function valueOnAxis(place: number, { low, high, unit }: Axis): number {
  const begin = bent(low, unit);
  return straight(begin + place * (bent(high, unit) - begin), unit);
}

const often = new Uint32Array(CODES);

/** Counts the codes of a frame; what it gives is overwritten by the next call. */
export function countCodes(codes: Uint16Array): Uint32Array {
  often.fill(0);
  for (let n = 0; n < codes.length; n++) {
    const code = codes[n] as number;
    often[code] = (often[code] as number) + 1;
  }
  return often;
}

/** The lowest and the highest number of counted codes; null if there is none. */
export function rangeOf(counted: Uint32Array, coding: Coding): [low: number, high: number] | null {
  let first = CODE_FIRST;
  let last = CODE_SATURATED - 1;
  while (first <= last && counted[first] === 0) first++;
  while (last >= first && counted[last] === 0) last--;
  if (first > last) return null;
  const numbers = numbersOfCodes(coding);
  return [numbers[first] as number, numbers[last] as number];
}

/** An axis that has all of these, and does not change with every frame. */
export function axisFor(values: number[], coding: Coding, before: Axis | null): Axis {
  const range = rangeOfCoding(coding);
  // With so large a unit, the axis is straight.
  if (range) return { low: range[0], high: range[1], unit: 1e6 * (Math.abs(range[0]) + Math.abs(range[1])) };
  const known = before ? [...values, before.low, before.high] : values;
  const [low, high] = [Math.min(0, ...known), Math.max(...known)];
  const round = (value: number) =>
    value > 0 ? 2 ** Math.ceil(Math.log2(value)) : value < 0 ? -(2 ** Math.ceil(Math.log2(-value))) : 0;
  const end = Math.max(round(high), coding === "count" ? 16 : Number.MIN_VALUE);
  const unit = coding === "count" ? 1 : (before?.unit ?? Math.max(end, -low) / 1000);
  return { low: round(low), high: end, unit };
}

/** The part of the highest bar that each bar has, by the logarithm of its count. */
export function barsOf(counted: Uint32Array, coding: Coding, axis: Axis, bars: Float64Array): void {
  const numbers = numbersOfCodes(coding);
  bars.fill(0);
  for (let code = CODE_FIRST; code < CODE_SATURATED; code++) {
    const count = counted[code] as number;
    if (count === 0) continue;
    const place = Math.floor(placeOnAxis(numbers[code] as number, axis) * bars.length);
    const bar = Math.min(bars.length - 1, Math.max(0, place));
    bars[bar] = (bars[bar] as number) + count;
  }
  let highest = 0;
  for (let n = 0; n < bars.length; n++) {
    const height = Math.log1p(bars[n] as number);
    bars[n] = height;
    if (height > highest) highest = height;
  }
  for (let n = 0; n < bars.length && highest > 0; n++) bars[n] = (bars[n] as number) / highest;
}
