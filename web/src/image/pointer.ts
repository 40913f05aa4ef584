// Wheel and buttons of the mouse on the image: zoom, pan, a box, window and level.

import type { Point } from "./geometry";
import { boxed, panned, toImage, zoomed } from "./view";
import type { Viewer } from "./viewer";

type Drag = { kind: "pan" | "box" | "level" | "tool"; from: Point; last: Point };

const placeIn = (element: HTMLElement, event: MouseEvent): Point => {
  const { left, top } = element.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
};

function kindOf(event: PointerEvent): Drag["kind"] | null {
  if (event.button === 2) return "level";
  if (event.button !== 0) return null;
  return event.shiftKey || event.ctrlKey ? "box" : "pan";
}

/** Right or left changes the width of the contrast, up or down its middle. */
function levelled(viewer: Viewer, dx: number, dy: number): void {
  const { low, high } = viewer.actualContrast();
  const width = (high - low) * Math.exp(dx / 150);
  const middle = (low + high) / 2 + ((high - low) * dy) / 300;
  viewer.setContrast({ low: middle - width / 2, high: middle + width / 2 });
}

/** Follows the mouse until the function that it gives is called. `onCanvas` says where a place of the element is on the
 * canvas of the image. */
export function followPointer(element: HTMLElement, viewer: Viewer, onCanvas = (at: Point): Point => at): () => void {
  let drag: Drag | null = null;

  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const factor = Math.exp(-Math.max(-300, Math.min(300, event.deltaY * lines)) * 0.0015);
    const at = placeIn(element, event);
    viewer.changeView((view) => zoomed(view, at, factor));
  };

  /** The place in the image, for the tool. */
  const inImage = (at: Point): Point | null => {
    const view = viewer.actualView();
    return view && toImage(view, onCanvas(at));
  };

  const down = (event: PointerEvent) => {
    const from = placeIn(element, event);
    const place = inImage(from);
    const isTaken = event.button === 0 && place && viewer.tool.value?.press(place, event);
    const kind = isTaken ? "tool" : kindOf(event);
    if (kind === null) return;
    drag = { kind, from, last: from };
    element.setPointerCapture(event.pointerId);
  };

  const move = (event: PointerEvent) => {
    const at = placeIn(element, event);
    viewer.pointTo(onCanvas(at));
    const place = inImage(at);
    if (place && (!drag || drag.kind === "tool")) viewer.tool.value?.move(place, event);
    if (!drag) return;
    const [dx, dy] = [at.x - drag.last.x, at.y - drag.last.y];
    drag.last = at;
    if (drag.kind === "pan" && (dx !== 0 || dy !== 0)) viewer.changeView((view) => panned(view, dx, dy));
    if (drag.kind === "box") viewer.box.value = [drag.from, at];
    if (drag.kind === "level") levelled(viewer, dx, dy);
  };

  const up = (event: PointerEvent) => {
    const place = inImage(placeIn(element, event));
    if (place && drag?.kind === "tool") viewer.tool.value?.release(place, event);
    const box = viewer.box.value;
    viewer.box.value = null;
    if (drag?.kind === "box" && box) viewer.changeView((view, canvas) => boxed(view, canvas, box[0], box[1]));
    drag = null;
  };

  const cancel = () => {
    viewer.box.value = null;
    drag = null;
  };

  const leave = () => viewer.pointTo(null);
  // With a tool a double click is two of its presses.
  const fit = () => {
    if (!viewer.tool.value) viewer.fit();
  };
  const noMenu = (event: Event) => event.preventDefault();

  element.addEventListener("wheel", wheel, { passive: false });
  const others = {
    pointerdown: down as (event: Event) => void,
    pointermove: move as (event: Event) => void,
    pointerup: up as (event: Event) => void,
    pointercancel: cancel,
    pointerleave: leave,
    dblclick: fit,
    contextmenu: noMenu,
  };
  for (const [name, listener] of Object.entries(others)) element.addEventListener(name, listener);
  return () => {
    element.removeEventListener("wheel", wheel);
    for (const [name, listener] of Object.entries(others)) element.removeEventListener(name, listener);
  };
}
