// What the numbers of the lists of an image are of: places along a profile, regions.

import type { ResultPlot } from "../../api/client";
import { ICE_ANGSTROM } from "../../image/geometry";

type Facts = Partial<Pick<ResultPlot, "profile_axis" | "profile_unit" | "regions">>;

/** What is along a profile, by the unit that the analysis gives it. */
const QUANTITIES: Record<string, string> = {
  "1/angstrom": "q, 1/Å",
  deg: "2θ, degrees",
  angstrom: "d, Å",
};

/** Of another run, or of another recipe, the facts do not fit: then the bins are counted. */
export function profileAxis(facts: Facts | null, bins: number): { axis: number[]; name: string } {
  const { profile_axis: axis, profile_unit: unit } = facts ?? {};
  if (!axis || axis.length !== bins || !unit) return { axis: Array.from({ length: bins }, (_, n) => n), name: "bin" };
  return { axis, name: QUANTITIES[unit] ?? unit };
}

/** The names, or numbers from 1 where they are not known. */
export function namesOfRegions(facts: Facts | null, count: number): string[] {
  const names = facts?.regions ?? [];
  return Array.from({ length: count }, (_, n) => (names.length === count ? (names[n] as string) : String(n + 1)));
}

/** Where a ring with this spacing lies along a profile; null if it cannot be told. */
function placeOfSpacing(dAngstrom: number, unit: string, wavelengthAngstrom: number | null): number | null {
  if (unit === "1/angstrom") return (2 * Math.PI) / dAngstrom;
  if (unit === "angstrom") return dAngstrom;
  const sine = (wavelengthAngstrom ?? Number.NaN) / (2 * dAngstrom);
  return unit === "deg" && sine <= 1 ? (360 * Math.asin(sine)) / Math.PI : null;
}

/** For each bin how many rings of ice lie in it; null if it cannot be told. */
export function iceInBins(facts: Facts | null, bins: number, wavelengthAngstrom: number | null): number[] | null {
  const { profile_axis: axis, profile_unit: unit } = facts ?? {};
  if (!axis || axis.length !== bins || bins < 2 || !unit) return null;
  const step = ((axis[bins - 1] as number) - (axis[0] as number)) / (bins - 1);
  const counts = axis.map(() => 0);
  for (const spacing of ICE_ANGSTROM) {
    const place = placeOfSpacing(spacing, unit, wavelengthAngstrom);
    const bin = place === null ? -1 : Math.round((place - (axis[0] as number)) / step);
    if (counts[bin] !== undefined) counts[bin] += 1;
  }
  return counts.some((count) => count > 0) ? counts : null;
}
