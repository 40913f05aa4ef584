// Why a pixel has no number, asked of the service when the pointer rests on it.

import { signal } from "@preact/signals";
import type { SpecialKind } from "./code16";
import { SPECIAL_WORDS } from "./colours";
import type { ModulePlace } from "./modules";

export interface PixelPlace {
  detector: string;
  run: number;
  column: number;
  row: number;
}

type Ask = (place: PixelPlace) => Promise<string[]>;

const REST_MS = 150;
const KNOWN_MAX = 256;

const keyOf = ({ detector, run, column, row }: PixelPlace) => `${detector} ${run} ${column} ${row}`;

/** Knows the reasons of the last pixels that were asked for. */
export class Reasons {
  /** Why the pixel under the pointer has no number; null as long as that is not known. */
  readonly shown = signal<string[] | null>(null);
  private readonly known = new Map<string, string[]>();
  private wanted: string | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly ask: Ask) {}

  /** The pointer is on this pixel now; null: on none that has a reason. */
  look(place: PixelPlace | null): void {
    const key = place && keyOf(place);
    if (key === this.wanted) return;
    clearTimeout(this.timer);
    this.wanted = key;
    this.shown.value = key === null ? null : (this.known.get(key) ?? null);
    if (place && key && this.shown.value === null) this.timer = setTimeout(() => void this.find(place, key), REST_MS);
  }

  private async find(place: PixelPlace, key: string): Promise<void> {
    try {
      const reasons = await this.ask(place);
      const oldest = this.known.keys().next().value;
      if (this.known.size >= KNOWN_MAX && oldest !== undefined) this.known.delete(oldest);
      this.known.set(key, reasons);
      if (key === this.wanted) this.shown.value = reasons;
    } catch {
      // Without an answer the kind alone is shown.
    }
  }
}

/** The kind of a pixel without a number, with its reason. */
export function kindText(kind: SpecialKind, reasons: readonly string[] | null, module: ModulePlace | null): string {
  const word = SPECIAL_WORDS[kind];
  if (kind === "missing") return module ? `${word}: packets of module ${module.index} were lost` : word;
  return kind !== "saturated" && reasons && reasons.length > 0 ? `${word}: ${reasons.join(", ")}` : word;
}
