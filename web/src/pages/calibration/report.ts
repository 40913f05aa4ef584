// What the report of a calibration says, in words.

import type { CalibrationReport, CalibrationRow } from "../../api/client";
import { count, UNKNOWN } from "../../app/format";

/** All gain stages of a module in one storage cell. */
export interface ModuleOfCell {
  module: number;
  cell: number | null;
  stages: CalibrationRow[];
}

export function modulesOf(rows: readonly CalibrationRow[]): ModuleOfCell[] {
  const found = new Map<string, ModuleOfCell>();
  for (const row of rows) {
    const { module } = row;
    const cell = row.cell ?? null;
    const key = `${cell} ${module}`;
    const one = found.get(key) ?? { module, cell, stages: [] };
    one.stages.push(row);
    found.set(key, one);
  }
  return [...found.values()].sort((a, b) => (a.cell ?? 0) - (b.cell ?? 0) || a.module - b.module);
}

export function stageName(stage: string): string {
  return stage.toUpperCase();
}

/** "76: 49 dead, 27 noisy" */
export function maskedWords({ masked_pixels, masked }: CalibrationRow): string {
  if (masked_pixels === 0) return "0";
  const reasons = Object.entries(masked).map(([name, pixels]) => `${count(pixels)} ${name}`);
  return `${count(masked_pixels)}: ${reasons.join(", ")}`;
}

/** Null if nothing is unusual. */
export function remarksOf({ stages }: ModuleOfCell): string | null {
  // What several stages have in common is said once.
  const found = new Map<string, string[]>();
  for (const { good, stage, remarks } of stages) {
    if (good) continue;
    const words = remarks.join("; ");
    found.set(words, [...(found.get(words) ?? []), stageName(stage)]);
  }
  const remarks = [...found].map(([words, names]) => `${names.join(", ")}: ${words}`);
  return remarks.length === 0 ? null : remarks.join(". ");
}

export function adu(value: number | null | undefined, places: number): string {
  return typeof value === "number" ? value.toFixed(places) : UNKNOWN;
}

/** With its sign. */
export function shift(value: number | null | undefined): string {
  return typeof value === "number" ? `${value > 0 ? "+" : ""}${value.toFixed(2)}` : UNKNOWN;
}

/** "42 min", "5.5 h", "3 days" */
export function ageWords(seconds: number | null | undefined): string {
  if (typeof seconds !== "number") return UNKNOWN;
  if (seconds < 60) return "less than a minute";
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Number((seconds / 3600).toFixed(1))} h`;
  return `${Math.floor(seconds / 86_400)} days`;
}

export interface Age {
  words: string;
  /** Null if no limit is known. */
  limit: string | null;
  isTooOld: boolean;
}

/** How old the pedestals are now, `later` seconds after the report came. */
export function ageOf(report: CalibrationReport, later: number): Age {
  const { age_s, recommended_age_s, max_age_s } = report;
  const recommended = recommended_age_s ?? null;
  const most = max_age_s ?? null;
  const limits = [
    recommended === null ? null : `recommended: at most ${ageWords(recommended)}`,
    most === null ? null : `runs are refused after ${ageWords(most)}`,
  ].filter((words) => words !== null);
  const limit = limits.length === 0 ? null : limits.join("; ");
  if (typeof age_s !== "number") {
    return { words: "It is not known when the pedestals were taken", limit, isTooOld: recommended !== null };
  }
  const age = age_s + later;
  const isTooOld = age > Math.min(recommended ?? Number.POSITIVE_INFINITY, most ?? Number.POSITIVE_INFINITY);
  return { words: `Pedestals taken ${ageWords(age)} ago`, limit, isTooOld };
}

/** Names of the reasons whose bits are set. */
export function reasonsOf(bits: number, reasons: CalibrationReport["reasons"]): string {
  const names = reasons.filter(({ bit }) => Math.floor(bits / 2 ** bit) % 2 === 1).map(({ name }) => name);
  return names.length === 0 ? "good" : names.join(", ");
}
