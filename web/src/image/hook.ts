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
  readonly renderer: RendererKind;
}

declare global {
  interface Window {
    __konkordia?: TestHook;
  }
}

export function installHook(viewer: Viewer, painter: Painter): void {
  window.__konkordia = {
    readPixel: (x, y) => painter.readPixel(x, y),
    value: (x, y) => {
      const index = viewer.frame && indexAt(viewer.frame, { x, y });
      return viewer.frame && index !== null ? viewer.frame.value(index) : null;
    },
    frame: () => viewer.header.value,
    renderer: viewer.renderer.value,
  };
}
