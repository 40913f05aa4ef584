// The keys of the page Live, and what they do.

import { MAP_NAMES } from "../../image/colours";
import { endReference, keepReference } from "../../image/reference";
import { stepped } from "../../image/stack";
import { panned } from "../../image/view";
import type { Layers, Viewer } from "../../image/viewer";

interface Key {
  key: string;
  does: string;
}

/** For the list of keys; the mouse is part of it. */
export const KEYS: Key[] = [
  { key: "Space", does: "keep this image, or show the newest ones again; play a file, or stop" },
  { key: "h", does: "show the newest image that is a hit" },
  { key: "← →", does: "image before or after" },
  { key: "Home End", does: "oldest or newest image that is kept; first or last of a file" },
  { key: "g", does: "go to the image with a number" },
  { key: "+ -", does: "sum or maximum of more or fewer images" },
  { key: "k", does: "keep this image at the left, as a reference" },
  { key: "x", does: "show one image alone again" },
  { key: "0", does: "all of the image" },
  { key: "1", does: "one pixel of the image for each dot of the screen" },
  { key: "z", does: "beam centre in the middle" },
  { key: "Shift + arrows", does: "move the image" },
  { key: "i", does: "exchange bright and dark" },
  { key: "c", does: "next colour map" },
  { key: "l", does: "logarithmic scale on or off" },
  { key: "a", does: "contrast by this image, once" },
  { key: "s", does: "spots on or off" },
  { key: "m", does: "masked, missing and invalid pixels in colours of their own, or in one; the drawn mask on or off" },
  { key: "o", does: "outlines of the modules on or off" },
  { key: "p", does: "regions on or off" },
  { key: "r", does: "resolution rings on or off" },
  { key: "d", does: "a ring through the pointer, or none" },
  { key: "e", does: "ice rings on or off" },
  { key: "b", does: "beam centre on or off" },
  { key: "Wheel", does: "zoom at the pointer" },
  { key: "Drag", does: "move the image" },
  { key: "Shift or Ctrl + drag", does: "zoom into a box" },
  { key: "Double click", does: "all of the image" },
  { key: "Right button + drag", does: "contrast: left and right its width, up and down its middle" },
];

function toggle(viewer: Viewer, layer: keyof Layers): void {
  viewer.layers.value = { ...viewer.layers.value, [layer]: !viewer.layers.value[layer] };
}

function nextMap(viewer: Viewer): void {
  const look = viewer.look.value;
  const next = MAP_NAMES[(MAP_NAMES.indexOf(look.map) + 1) % MAP_NAMES.length] ?? look.map;
  viewer.look.value = { ...look, map: next };
}

function toEnd(viewer: Viewer, end: "first" | "last"): void {
  const extent = viewer.extent();
  if (extent) viewer.goTo(extent[end]);
}

const stack = (viewer: Viewer, steps: number) => viewer.chooseStack(stepped(viewer.stack.value, steps));

const changeLook = (viewer: Viewer, what: "isInverted" | "marksSpecial") => {
  viewer.look.value = { ...viewer.look.value, [what]: !viewer.look.value[what] };
};

/** What single keys do; `g` needs the page and is not among them. */
const ACTIONS: Record<string, (viewer: Viewer) => void> = {
  " ": (viewer) => viewer.toggleFreeze(),
  h: (viewer) => {
    // The newest hit is one of the live images.
    if (viewer.file.value !== null) return;
    viewer.source.value = viewer.source.value === "hit" ? "latest" : "hit";
  },
  ArrowLeft: (viewer) => viewer.step(-1),
  ArrowRight: (viewer) => viewer.step(1),
  Home: (viewer) => toEnd(viewer, "first"),
  End: (viewer) => toEnd(viewer, "last"),
  "0": (viewer) => viewer.fit(),
  "1": (viewer) => viewer.oneToOne(),
  z: (viewer) => viewer.showBeam(),
  i: (viewer) => changeLook(viewer, "isInverted"),
  m: (viewer) => changeLook(viewer, "marksSpecial"),
  c: nextMap,
  l: (viewer) => {
    const look = viewer.look.value;
    viewer.look.value = { ...look, scale: look.scale === "log" ? "linear" : "log" };
  },
  a: (viewer) => viewer.autoContrast(),
  s: (viewer) => toggle(viewer, "spots"),
  r: (viewer) => toggle(viewer, "rings"),
  e: (viewer) => toggle(viewer, "ice"),
  b: (viewer) => toggle(viewer, "beam"),
  o: (viewer) => toggle(viewer, "modules"),
  p: (viewer) => toggle(viewer, "regions"),
  d: (viewer) => viewer.toggleRing(),
  "+": (viewer) => stack(viewer, 1),
  "-": (viewer) => stack(viewer, -1),
  k: keepReference,
  x: endReference,
};

const MOVE_PX = 60;
const MOVES: Record<string, [dx: number, dy: number]> = {
  ArrowLeft: [MOVE_PX, 0],
  ArrowRight: [-MOVE_PX, 0],
  ArrowUp: [0, MOVE_PX],
  ArrowDown: [0, -MOVE_PX],
};

/** Does what a key means; false if it means nothing here. */
export function actOnKey(viewer: Viewer, key: string, hasShift: boolean): boolean {
  const move = hasShift ? MOVES[key] : undefined;
  if (move) {
    viewer.changeView((view) => panned(view, move[0], move[1]));
    return true;
  }
  // On many keyboards + needs Shift.
  const action = (hasShift && key !== "+") || !Object.hasOwn(ACTIONS, key) ? undefined : ACTIONS[key];
  action?.(viewer);
  return action !== undefined;
}
