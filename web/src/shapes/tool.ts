// Draws, selects, moves and resizes shapes by the pointer.

import { computed, signal } from "@preact/signals";
import type { Point } from "../image/geometry";
import { strokeTwice, writeText } from "../image/labels";
import { MASK_COLOUR, REGION_COLOUR } from "../image/outlines";
import { outline } from "../image/shapes";
import type { Tool } from "../image/tool";
import { toScreen, type View } from "../image/view";
import { corner, type DraggedForm, dragged, handlesOf, moved } from "./change";
import type { Editor } from "./editor";
import { hitAt } from "./hit";
import { type Place, replaced, type Shape, shapeAt } from "./model";

/** On the screen. */
const NEAR_PX = 8;
const HANDLE_PX = 4;
/** Less is a click and no shape. */
const DRAG_LEAST_PX = 4;
const DOUBLE_MS = 400;

/** What the pointer has taken: the shape, for each place to which it goes. */
type Drag =
  | { kind: "change"; place: Place; from: Point; shapeFor: (to: Point) => Shape }
  | { kind: "new"; form: DraggedForm; from: Point };

export class ShapeTool implements Tool {
  readonly version = computed(() => {
    const { editor } = this;
    return [editor.shapes, editor.selected, editor.corners.value, this.sketch.value, this.hover.value];
  });
  private drag: Drag | null = null;
  /** The new shape while it is drawn. */
  private readonly sketch = signal<Shape | null>(null);
  /** Where the next corner of a polygon would be. */
  private readonly hover = signal<Point | null>(null);
  private lastPress: { at: Point; time: number } | null = null;

  constructor(private readonly editor: Editor) {}

  press(at: Point, event: PointerEvent): boolean {
    this.abandon();
    // These zoom into a box, also while something is drawn.
    if (event.shiftKey || event.ctrlKey) return false;
    const drawing = this.editor.drawing.value;
    if (this.editor.corners.value.length === 0 && this.takeHandle(at)) return true;
    if (drawing === "polygon") this.addCorner(at, event.timeStamp);
    else if (drawing) this.drag = { kind: "new", form: drawing, from: at };
    else return this.takeShape(at);
    return true;
  }

  move(at: Point, event: PointerEvent): void {
    if (this.drag && event.buttons === 0) this.abandon();
    if (this.editor.corners.value.length > 0) this.hover.value = at;
    const { drag } = this;
    if (drag?.kind === "new") {
      this.sketch.value = this.isDragged(drag.from, at) ? dragged(drag.form, drag.from, at) : null;
    } else if (drag) {
      const { draft } = this.editor;
      draft.value.preview.value = replaced(draft.value.history.value.now, drag.place, drag.shapeFor(at));
    }
  }

  release(at: Point): void {
    const { drag, editor } = this;
    this.abandon();
    if (!drag || !this.isDragged(drag.from, at)) return;
    if (drag.kind === "new") editor.add(dragged(drag.form, drag.from, at));
    else editor.change(drag.place, drag.shapeFor(at));
  }

  draw(context: CanvasRenderingContext2D, view: View): void {
    const { mask, regions } = this.editor.shapes;
    const path = { context, view, beam: this.editor.beam() };
    context.lineJoin = "round";
    context.beginPath();
    for (const shape of mask) outline(path, shape);
    strokeTwice(context, MASK_COLOUR, 2);
    context.fillStyle = MASK_COLOUR;
    context.globalAlpha = 0.35;
    // A polygon has what it encloses an odd number of times; where two shapes lie on each other, both are masked.
    for (const shape of mask) {
      context.beginPath();
      outline(path, shape);
      context.fill("evenodd");
    }
    context.globalAlpha = 1;
    context.beginPath();
    const names = regions.map(({ name, shape }) => ({ name, at: outline(path, shape) }));
    strokeTwice(context, REGION_COLOUR, 2);
    for (const { name, at } of names) {
      if (at) writeText(context, name, { x: Math.max(4, at.x), y: Math.max(10, at.y - 10) }, REGION_COLOUR);
    }
    this.drawSelected(context, view);
    this.drawBegun(context, view);
  }

  private drawSelected(context: CanvasRenderingContext2D, view: View): void {
    const shape = this.editor.selectedShape;
    if (!shape) return;
    context.beginPath();
    outline({ context, view, beam: this.editor.beam() }, shape);
    context.setLineDash([4, 3]);
    strokeTwice(context, "#fff", 2);
    context.setLineDash([]);
    context.lineWidth = 1.5;
    for (const { at } of handlesOf(shape)) {
      const { x, y } = toScreen(view, at);
      context.fillStyle = "#fff";
      context.strokeStyle = "#000";
      context.fillRect(x - HANDLE_PX, y - HANDLE_PX, 2 * HANDLE_PX, 2 * HANDLE_PX);
      context.strokeRect(x - HANDLE_PX, y - HANDLE_PX, 2 * HANDLE_PX, 2 * HANDLE_PX);
    }
  }

  /** What is not yet a shape. */
  private drawBegun(context: CanvasRenderingContext2D, view: View): void {
    const corners = this.editor.corners.value.map(([x, y]) => toScreen(view, { x, y }));
    const next = this.hover.value;
    context.beginPath();
    if (this.sketch.value) outline({ context, view, beam: null }, this.sketch.value);
    for (const [n, { x, y }] of corners.entries()) {
      if (n === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    }
    if (next && corners.length > 0) {
      const { x, y } = toScreen(view, next);
      context.lineTo(x, y);
    }
    strokeTwice(context, "#fff", 1.5);
    context.fillStyle = "#fff";
    for (const { x, y } of corners) context.fillRect(x - 3, y - 3, 6, 6);
  }

  private view(): View {
    return this.editor.viewer.actualView() ?? { x: 0, y: 0, scale: 1 };
  }

  /** On the screen. */
  private distance(a: Point, b: Point): number {
    const [{ x: x0, y: y0 }, { x: x1, y: y1 }] = [toScreen(this.view(), a), toScreen(this.view(), b)];
    return Math.hypot(x0 - x1, y0 - y1);
  }

  private isDragged(from: Point, to: Point): boolean {
    return this.distance(from, to) >= DRAG_LEAST_PX;
  }

  private abandon(): void {
    this.drag = null;
    this.sketch.value = null;
    this.hover.value = null;
    this.editor.draft.value.preview.value = null;
  }

  private takeHandle(at: Point): boolean {
    const { selected: place, selectedShape: shape } = this.editor;
    if (!place || !shape) return false;
    const near = handlesOf(shape)
      .map((handle) => ({ handle, far: this.distance(handle.at, at) }))
      .reduce<{ handle: ReturnType<typeof handlesOf>[number]; far: number } | null>(
        (best, one) => (best === null || one.far < best.far ? one : best),
        null,
      );
    if (!near || near.far > NEAR_PX) return false;
    this.drag = { kind: "change", place, from: at, shapeFor: near.handle.drag };
    return true;
  }

  private takeShape(at: Point): boolean {
    const { editor } = this;
    const within = NEAR_PX / 2 / this.view().scale;
    const place = hitAt(editor.shapes, editor.list.value, at, within, editor.beam());
    editor.select(place);
    const shape = place && shapeAt(editor.shapes, place);
    if (!place || !shape) return false;
    const shapeFor = (to: Point) => moved(shape, to.x - at.x, to.y - at.y, editor.beam());
    this.drag = { kind: "change", place, from: at, shapeFor };
    return true;
  }

  /** The second press of two quick ones at one place, or one at the first corner, closes the polygon. */
  private addCorner(at: Point, time: number): void {
    const { editor, lastPress } = this;
    const isAt = (other: Point) => this.distance(at, other) <= NEAR_PX;
    this.lastPress = { at, time };
    const corners = editor.corners.value;
    const first = corners[0];
    const isSecond = lastPress !== null && time - lastPress.time < DOUBLE_MS && isAt(lastPress.at);
    if (corners.length > 0 && isSecond) {
      if (corners.length >= 3) editor.closePolygon();
      return;
    }
    if (first && corners.length >= 3 && isAt({ x: first[0], y: first[1] })) editor.closePolygon();
    else editor.corners.value = [...corners, corner(at)];
  }
}
