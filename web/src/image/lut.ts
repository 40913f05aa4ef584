// The colour of each of the 65536 codes of a frame.

import { CODE_SATURATED, CODES, type Coding, isSpecial, numbersOfCodes, specialKind } from "./code16";
import { colourAt, type MapName, SPECIAL_COLOURS } from "./colours";

export interface Contrast {
  low: number;
  high: number;
}

export interface Look {
  map: MapName;
  isInverted: boolean;
  scale: "linear" | "log";
  /** Tells missing, masked and invalid pixels apart; else they have one quiet colour. */
  marksSpecial: boolean;
}

/** Dark spots on white. */
export const LOOK_AT_FIRST: Look = { map: "greys", isInverted: true, scale: "linear", marksSpecial: true };

const COLOURS = 1024;

function packed([red, green, blue]: readonly number[]): number {
  return ((255 << 24) | ((blue as number) << 16) | ((green as number) << 8) | (red as number)) >>> 0;
}

function mapColours(look: Look): Uint32Array {
  return Uint32Array.from({ length: COLOURS }, (_, n) => {
    const place = n / (COLOURS - 1);
    return packed(colourAt(look.map, look.isInverted ? 1 - place : place));
  });
}

/** How strongly a logarithmic scale bends: as log(1 + counts), or over three decades for floats. */
function bend(contrast: Contrast, coding: Coding): number {
  return coding === "count" ? Math.max(1, contrast.high - contrast.low) : 1000;
}

/** Where a value lies between the two ends of the contrast, 0 to 1. */
export function placeOf(value: number, contrast: Contrast, scale: Look["scale"], coding: Coding): number {
  const linear = Math.min(1, Math.max(0, (value - contrast.low) / (contrast.high - contrast.low)));
  if (scale === "linear") return linear;
  const strength = bend(contrast, coding);
  return Math.log1p(strength * linear) / Math.log1p(strength);
}

/** The value at a place from 0 to 1. */
export function valueAt(place: number, contrast: Contrast, scale: Look["scale"], coding: Coding): number {
  const strength = bend(contrast, coding);
  const linear = scale === "linear" ? place : Math.expm1(place * Math.log1p(strength)) / strength;
  return contrast.low + linear * (contrast.high - contrast.low);
}

/** Keeps the ends apart and in order. */
export function sensible({ low, high }: Contrast): Contrast {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return { low: 0, high: 1 };
  if (high > low) return { low, high };
  return { low, high: low + Math.max(1, Math.abs(low) * 1e-6) };
}

/** Fills the table: one colour for each code, as red, green, blue and alpha in the order of the bytes. */
export function fillLut(lut: Uint32Array, contrast: Contrast, look: Look, coding: Coding): void {
  const limits = sensible(contrast);
  const colours = mapColours(look);
  const numbers = numbersOfCodes(coding);
  const saturated = packed(SPECIAL_COLOURS.saturated);
  const quiet = packed(SPECIAL_COLOURS.masked);
  for (let code = 0; code < CODES; code++) {
    if (!isSpecial(code)) {
      const number = numbers[code] as number;
      const place = Number.isNaN(number) ? 0 : placeOf(number, limits, look.scale, coding);
      lut[code] = colours[Math.round(place * (COLOURS - 1))] as number;
    } else if (code === CODE_SATURATED) {
      lut[code] = saturated;
    } else {
      lut[code] = look.marksSpecial ? packed(SPECIAL_COLOURS[specialKind(code)]) : quiet;
    }
  }
}
