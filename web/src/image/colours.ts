// Colour maps, and the colours of pixels without a number. The maps are straight lines between a few colours.

import type { SpecialKind } from "./code16";

export type MapName = "greys" | "viridis" | "inferno" | "cividis" | "heat";
export type Colour = [red: number, green: number, blue: number];

export const MAP_NAMES: MapName[] = ["greys", "viridis", "inferno", "cividis", "heat"];

const STOPS: Record<MapName, string> = {
  greys: "000000 ffffff",
  viridis: "440154 482475 414487 355f8d 2a788e 21918c 22a884 44bf70 7ad151 bddf26 fde725",
  inferno: "000004 160b39 420a68 6a176e 932667 bc3754 dd513a f37819 fca50a f6d746 fcffa4",
  cividis: "00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838",
  heat: "000000 550000 aa0000 ff0000 ff4400 ff8800 ffcc00 ffff33 ffff99 ffffff",
};

const ofHex = (hex: string): Colour => [0, 2, 4].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)) as Colour;

/** The colour of a map at a place from 0 to 1. */
export function colourAt(name: MapName, place: number): Colour {
  const stops = STOPS[name].split(" ");
  const along = Math.min(1, Math.max(0, place)) * (stops.length - 1);
  const first = Math.min(stops.length - 2, Math.floor(along));
  const [from, to] = [ofHex(stops[first] as string), ofHex(stops[first + 1] as string)];
  return from.map((channel, n) => Math.round(channel + (along - first) * ((to[n] as number) - channel))) as Colour;
}

/** No map has one of these: a pixel without a number never looks like one with a number. */
export const SPECIAL_COLOURS: Record<SpecialKind, Colour> = {
  masked: [104, 124, 190],
  missing: [230, 0, 230],
  invalid: [0, 210, 235],
  saturated: [0, 220, 50],
};

export const SPECIAL_WORDS: Record<SpecialKind, string> = {
  masked: "masked",
  missing: "missing",
  invalid: "not valid",
  saturated: "saturated",
};

export const cssColour = ([red, green, blue]: Colour) => `rgb(${red}, ${green}, ${blue})`;
