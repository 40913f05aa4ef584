// Results in words: files, rules and the API have the names of the service, which the titles of rows and choices show.

import { count } from "../../app/format";
import { shortNumber } from "./numbers";

/** Units at the end of names, and as the service says them. */
const UNITS: Record<string, string> = { deg: "°", degrees: "°", angstrom: "Å", px: "px", um: "µm", kev: "keV" };

/** What people look for first. */
const FIRST = ["is_hit", "spots", "resolution_angstrom", "is_indexed", "spots_on_ice", "background", "max_value"];

/** The same number under the name that CrystFEL wants in files. */
const TWICE = new Set(["nPeaks"]);

/** Those of regions have a tab of their own, also where there is one region only. */
const OF_REGIONS = "region_";

export const unitSign = (unit: string): string => UNITS[unit] ?? unit;

/** `resolution_angstrom` is "resolution" in "Å", `is_hit` is "hit". */
export function resultWords(name: string): { words: string; unit: string } {
  const parts = name.replace(/^is_/, "").split("_");
  const unit = parts.length > 1 ? (UNITS[parts.at(-1) ?? ""] ?? "") : "";
  return { words: (unit === "" ? parts : parts.slice(0, -1)).join(" "), unit };
}

export const capital = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);

/** The number with its unit; what is true or false is yes or no. */
export function resultText(name: string, value: number | null): string {
  if (name.startsWith("is_") && (value === 0 || value === 1)) return value === 1 ? "yes" : "no";
  const text = Number.isInteger(value) ? count(value) : shortNumber(value);
  const { unit } = resultWords(name);
  return unit === "" || value === null ? text : unit === "°" ? `${text}°` : `${text} ${unit}`;
}

/** What is known of images that were not analysed, too. */
const WITHOUT_ANALYSIS = /^(is_analysed$|angle_deg$|raster_|pulse_id$|energy_kev$|sample_)/;
const OF_PIXELS = /_(pixels|value)$/;

/** The service says 0 of what the analysis would have said of an image that was not analysed: that is not known. */
export function asKnown(results: [name: string, value: number | null][]): [name: string, value: number | null][] {
  const of = (wanted: string) => results.find(([name]) => name === wanted)?.[1];
  if (of("is_analysed") !== 0) return results;
  // Of packets the workers count the pixels, of streams the analysis does.
  const hasPixels = (of("valid_pixels") ?? 0) > 0;
  const isKnown = (name: string) => WITHOUT_ANALYSIS.test(name) || (hasPixels && OF_PIXELS.test(name));
  return results.map(([name, value]) => [name, isKnown(name) ? value : null]);
}

/** Each result once, what people look for first at the beginning. */
export function inOrder<T>(results: [name: string, value: T][]): [name: string, value: T][] {
  const place = ([name]: [string, T]) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const shown = results.filter(([name]) => !TWICE.has(name) && !name.startsWith(OF_REGIONS));
  return shown.sort((a, b) => place(a) - place(b));
}
