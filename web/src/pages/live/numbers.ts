// Results as people read them. What is not known is an en dash.

import type { Results } from "../../image/frame";

export function shortNumber(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  return String(Number(value.toPrecision(5)));
}

/** The results with one number, in the order of the service. */
export function singleResults(results: Results | null): [name: string, value: number | null][] {
  return Object.entries(results ?? {}).filter((entry): entry is [string, number | null] => !Array.isArray(entry[1]));
}

/** A result that is a list, null if there is none of this name; the service says lists of one number as a number. */
export function listOf(results: Results | null, name: string): (number | null)[] | null {
  const list = results?.[name];
  if (list === undefined) return null;
  return Array.isArray(list) ? list : [list];
}

/** A result that is one number; null if it is not known. */
export function numberOf(results: Results | null, name: string): number | null {
  const value = results?.[name];
  return typeof value === "number" ? value : null;
}

export const sumOf = (numbers: number[]) => numbers.reduce((sum, one) => sum + one, 0);

/** A part of a whole in percent; an en dash of nothing. */
export function percentOf(part: number, whole: number): string {
  return whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}
