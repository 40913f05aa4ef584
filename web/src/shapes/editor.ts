// The editor of mask and regions: what is chosen in it, and what has been drawn for each detector.

import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { Point } from "../image/geometry";
import { centreOf as centreOfView } from "../image/view";
import type { Viewer } from "../image/viewer";
import { moved, startingShape } from "./change";
import { Draft } from "./draft";
import {
  added,
  type DrawnShapes,
  type Form,
  type ListName,
  type Place,
  replaced,
  type Shape,
  shapeAt,
  without,
} from "./model";

/** What the pointer draws. */
export type DrawingForm = "rectangle" | "circle" | "polygon";

export class Editor {
  readonly isOpen = signal(false);
  readonly list = signal<ListName>("mask");
  /** Null: the pointer selects and moves. */
  readonly drawing = signal<DrawingForm | null>(null);
  /** Corners of the polygon that is being drawn. */
  readonly corners = signal<[x: number, y: number][]>([]);
  readonly draft: ReadonlySignal<Draft>;
  private readonly chosen = signal<Place | null>(null);
  private readonly drafts = new Map<string, Draft>();

  constructor(readonly viewer: Viewer) {
    this.draft = computed(() => this.draftOf(viewer.connection.detector.value ?? ""));
  }

  /** The selected one, if it still is there. */
  get selected(): Place | null {
    const place = this.chosen.value;
    return place && shapeAt(this.shapes, place) ? place : null;
  }

  get shapes(): DrawnShapes {
    return this.draft.value.shapes.value;
  }

  get selectedShape(): Shape | null {
    const place = this.selected;
    return place && shapeAt(this.shapes, place);
  }

  beam(): Point | null {
    return this.viewer.beam();
  }

  select(place: Place | null): void {
    this.chosen.value = place;
    if (place) this.list.value = place.list;
  }

  showList(list: ListName): void {
    this.list.value = list;
    this.chosen.value = null;
    if (list === "regions" && this.drawing.value === "polygon") this.draw(null);
  }

  draw(form: DrawingForm | null): void {
    this.drawing.value = form;
    this.corners.value = [];
  }

  add(shape: Shape): void {
    const list = this.list.value;
    const shapes = this.draft.value.history.value.now;
    this.draft.value.change(added(shapes, list, shape));
    this.select({ list, index: shapes[list].length });
  }

  /** A shape in the middle of what is seen, to be changed by numbers and keys. */
  addForm(form: Form): void {
    const { viewer } = this;
    const view = viewer.actualView();
    const canvas = viewer.canvas.value;
    const middle = view ? centreOfView(view, canvas) : { x: 0, y: 0 };
    const half = view ? Math.min(canvas.width, canvas.height) / view.scale / 8 : 10;
    const beam = form === "ring" || form === "sector" ? this.beam() : null;
    this.add(startingShape(form, middle, half, beam !== null));
  }

  change(place: Place, shape: Shape, kind: string | null = null): void {
    const now = this.draft.value.history.value.now;
    this.draft.value.change(replaced(now, place, shape), kind && `${kind} ${place.list} ${place.index}`);
  }

  remove(): void {
    const place = this.selected;
    if (!place) return;
    this.draft.value.change(without(this.draft.value.history.value.now, place));
    this.chosen.value = null;
  }

  moveBy(dx: number, dy: number): boolean {
    const [place, shape] = [this.selected, this.selectedShape];
    if (!place || !shape) return false;
    this.change(place, moved(shape, dx, dy, this.beam()), "move");
    return true;
  }

  closePolygon(): void {
    const points = this.corners.value;
    this.corners.value = [];
    if (points.length >= 3) this.add({ form: "polygon", points });
  }

  /** Ends what is begun: the polygon, then the drawing, then the selection. False if nothing was. */
  giveUp(): boolean {
    if (this.corners.value.length > 0) this.corners.value = [];
    else if (this.drawing.value !== null) this.drawing.value = null;
    else if (this.selected) this.chosen.value = null;
    else return false;
    return true;
  }

  hasUnsaved(): boolean {
    return [...this.drafts.values()].some((draft) => draft.isChanged.peek());
  }

  private draftOf(detector: string): Draft {
    const draft = this.drafts.get(detector) ?? new Draft();
    this.drafts.set(detector, draft);
    return draft;
  }
}

const editors = new WeakMap<Viewer, Editor>();

/** The one editor of a viewer: what was drawn in it stays when it is closed. */
export function editorOf(viewer: Viewer): Editor {
  const known = editors.get(viewer);
  if (known) return known;
  const editor = new Editor(viewer);
  editors.set(viewer, editor);
  // A mask that was drawn and not saved is lost with the page.
  window.addEventListener("beforeunload", (event) => {
    if (editor.hasUnsaved()) event.preventDefault();
  });
  return editor;
}
