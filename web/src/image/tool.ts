// Something that takes the pointer instead of zoom and pan, as an editor of shapes does. Places are those of the image.

import type { ReadonlySignal } from "@preact/signals";
import type { Point } from "./geometry";
import type { View } from "./view";

export interface Tool {
  /** The left button was pressed; true if the tool takes what follows, else it moves the image as always. */
  press(at: Point, event: PointerEvent): boolean;
  /** The pointer moved, with or without a button that the tool took. */
  move(at: Point, event: PointerEvent): void;
  /** The button was let go. */
  release(at: Point, event: PointerEvent): void;
  /** Changes whenever what `draw` draws has changed. */
  readonly version: ReadonlySignal<unknown>;
  /** Draws above all layers, in CSS pixels. */
  draw(context: CanvasRenderingContext2D, view: View): void;
}
