// What tests may ask the page for.

import type { Value } from "./code16";
import type { FrameHeader } from "./frame";
import type { Painter } from "./painter";
import type { RendererKind } from "./renderer";
import { indexAt, type Viewer } from "./viewer";

export interface TestHook {
  /** Colour on the screen of the pixel of the image with this column and row. */
  readPixel(x: number, y: number): [number, number, number] | null;
  /** Value of the frame for this column and row; null if the frame does not have it. */
  value(x: number, y: number): Value | null;
  frame(): FrameHeader | null;
  /** The same of the reference; null without one. */
  reference(): FrameHeader | null;
  referenceValue(x: number, y: number): Value | null;
  readonly renderer: RendererKind;
}

declare global {
  interface Window {
    __konkordia?: TestHook;
  }
}

function valueAt(viewer: Viewer | null, x: number, y: number): Value | null {
  const index = viewer?.frame ? indexAt(viewer.frame, { x, y }) : null;
  return viewer?.frame && index !== null ? viewer.frame.value(index) : null;
}

export function installHook(viewer: Viewer, painter: Painter): void {
  window.__konkordia = {
    readPixel: (x, y) => painter.readPixel(x, y),
    value: (x, y) => valueAt(viewer, x, y),
    frame: () => viewer.header.value,
    reference: () => viewer.reference.value?.header.value ?? null,
    referenceValue: (x, y) => valueAt(viewer.reference.value, x, y),
    renderer: viewer.renderer.value,
  };
}
