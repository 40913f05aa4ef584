// What both renderers do: colour the codes of a frame and put them at their place.

import type { Codes } from "./pool";

export type RendererKind = "webgl" | "2d";

/** Where the frame lies on the canvas; all numbers in dots of the screen. */
export interface Placement {
  left: number;
  top: number;
  /** Width of one dot of the frame. */
  dot: number;
  /** Its height. */
  rowDot: number;
  /** The part of the canvas that the image fills; dots beyond it are not drawn. */
  right: number;
  bottom: number;
}

export interface Renderer {
  readonly kind: RendererKind;
  /** True while the picture is lost and not back yet. */
  readonly isLost: boolean;
  setCodes(codes: Codes): void;
  /** One colour for each code. */
  setLut(lut: Uint32Array): void;
  draw(placement: Placement): void;
  /** Empties the canvas. */
  clear(): void;
  /** The colour of a dot of the screen, after `draw` and before the browser shows it. */
  readPixel(x: number, y: number): [red: number, green: number, blue: number] | null;
  dispose(): void;
}
