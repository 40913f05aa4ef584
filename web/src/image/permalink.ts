// What is shown, as the part of the address after `#/live?`, and back.

import { MAP_NAMES, type MapName } from "./colours";
import { ONE_IMAGE, readStack, type StackChoice, writeStack } from "./stack";
import { centred, centreOf } from "./view";
import type { Viewer } from "./viewer";

/** What an address can say; all of it may be absent. */
export interface Shown {
  /** Whose images they are. */
  detector?: string;
  /** The master of a finished file. */
  file?: string;
  image?: number | "hit";
  stack?: StackChoice;
  /** Middle of the view, pixels, and CSS pixels for one pixel. */
  view?: { x: number; y: number; scale: number };
  contrast?: { low: number; high: number };
  map?: MapName;
  isInverted?: boolean;
  scale?: "linear" | "log";
  layers?: string;
}

export function writeShown(shown: Shown): string {
  const query = new URLSearchParams();
  if (shown.detector !== undefined) query.set("detector", shown.detector);
  if (shown.file !== undefined) query.set("file", shown.file);
  if (shown.image !== undefined) query.set("image", String(shown.image));
  if (shown.stack) query.set("stack", writeStack(shown.stack));
  if (shown.view)
    query.set("view", [shown.view.x, shown.view.y, shown.view.scale].map((n) => Number(n.toPrecision(7))).join(","));
  if (shown.contrast) query.set("contrast", `${shown.contrast.low},${shown.contrast.high}`);
  if (shown.map) query.set("map", shown.map);
  if (shown.isInverted !== undefined) query.set("invert", shown.isInverted ? "1" : "0");
  if (shown.scale) query.set("scale", shown.scale);
  if (shown.layers !== undefined) query.set("layers", shown.layers);
  return query.toString();
}

function numbers(text: string | null, count: number): number[] | null {
  const found = (text ?? "").split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  return found.length === count && found.every(Number.isFinite) ? found : null;
}

/** What is wrong in an address is left out. */
export function readShown(hash: string): Shown {
  const query = new URLSearchParams(hash.split("?")[1] ?? "");
  const shown: Shown = {};
  const detector = query.get("detector");
  if (detector) shown.detector = detector;
  const image = query.get("image");
  if (image === "hit") shown.image = image;
  else if (image && /^\d{1,15}$/.test(image)) shown.image = Number(image);
  const file = query.get("file");
  if (file) shown.file = file;
  const stack = readStack(query.get("stack"));
  if (stack) shown.stack = stack;
  const view = numbers(query.get("view"), 3) as [number, number, number] | null;
  if (view && view[2] > 0) shown.view = { x: view[0], y: view[1], scale: view[2] };
  const contrast = numbers(query.get("contrast"), 2) as [number, number] | null;
  if (contrast && contrast[1] > contrast[0]) shown.contrast = { low: contrast[0], high: contrast[1] };
  const map = MAP_NAMES.find((name) => name === query.get("map"));
  if (map) shown.map = map;
  const invert = query.get("invert");
  if (invert === "0" || invert === "1") shown.isInverted = invert === "1";
  const scale = query.get("scale");
  if (scale === "log" || scale === "linear") shown.scale = scale;
  const layers = query.get("layers");
  if (layers !== null && /^[smrebop]*$/.test(layers)) shown.layers = layers;
  return shown;
}

function lettersOf(viewer: Viewer): string {
  const { spots, rings, ice, beam, modules, regions } = viewer.layers.value;
  const m = viewer.look.value.marksSpecial;
  const isOn = { s: spots, m, r: rings, e: ice, b: beam, o: modules, p: regions };
  return Object.entries(isOn)
    .filter(([, on]) => on)
    .map(([letter]) => letter)
    .join("");
}

export function shownBy(viewer: Viewer): Shown {
  const { map, isInverted, scale } = viewer.look.value;
  const shown: Shown = { map, isInverted, scale, layers: lettersOf(viewer) };
  const detector = viewer.header.value?.detector ?? viewer.connection.detector.value;
  if (detector !== null) shown.detector = detector;
  const image = viewer.source.value === "latest" ? viewer.header.value?.image : viewer.source.value;
  if (image !== undefined) shown.image = image;
  if (viewer.file.value !== null) shown.file = viewer.file.value;
  if (viewer.stack.value.images > 1) shown.stack = viewer.stack.value;
  const view = viewer.view.value;
  if (view) shown.view = { ...centreOf(view, viewer.canvas.value), scale: view.scale };
  if (viewer.contrast.value) shown.contrast = viewer.contrast.value;
  return shown;
}

/** A link without a file is one to the images of the runs; one without a detector is to that which is shown. */
function restoreSource(viewer: Viewer, { detector, file, image, stack }: Shown): void {
  viewer.playback.stop();
  // First, as a file of the detector before is closed with it.
  if (detector !== undefined) viewer.connection.showDetector(detector);
  if (file !== undefined) viewer.openFile(file, typeof image === "number" ? image : 0);
  else if (viewer.file.value !== null) viewer.closeFile();
  if (file === undefined && image !== undefined) viewer.source.value = image;
  viewer.stack.value = stack ?? ONE_IMAGE;
}

export function restore(viewer: Viewer, shown: Shown): void {
  const { map, isInverted, scale, layers } = shown;
  const look = viewer.look.value;
  viewer.look.value = {
    ...look,
    map: map ?? look.map,
    isInverted: isInverted ?? look.isInverted,
    scale: scale ?? look.scale,
  };
  if (layers !== undefined) {
    const has = (letter: string) => layers.includes(letter);
    viewer.layers.value = {
      ...{ spots: has("s"), rings: has("r"), ice: has("e"), beam: has("b") },
      ...{ modules: has("o"), regions: has("p") },
    };
    viewer.look.value = { ...viewer.look.value, marksSpecial: has("m") };
  }
  restoreSource(viewer, shown);
  if (shown.contrast) viewer.contrast.value = shown.contrast;
  // A link without a view is one to all of the image.
  const { view } = shown;
  viewer.view.value = view ? centred(view, viewer.canvas.value, view, view.scale) : null;
}
