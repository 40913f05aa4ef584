// What somebody draws before it is saved, and what has become of that on the service meanwhile.

import { computed, signal } from "@preact/signals";
import { type Api, type ApiProblem, problemOf } from "../api/client";
import { begun, changed, type History, redone, undone } from "./history";
import { areSame, type DrawnShapes, NO_SHAPES, type SavedShapes } from "./model";

const only = ({ mask, regions }: DrawnShapes): DrawnShapes => ({ mask, regions });

export class Draft {
  /** What the service had when the changes began; null until it has said so. */
  readonly base = signal<SavedShapes | null>(null);
  readonly history = signal<History<DrawnShapes>>(begun(NO_SHAPES));
  /** How it looks while something is dragged. */
  readonly preview = signal<DrawnShapes | null>(null);
  /** What somebody else has saved since, while there are changes here. */
  readonly newer = signal<SavedShapes | null>(null);
  readonly problem = signal<ApiProblem | null>(null);
  readonly isBusy = signal(false);
  readonly shapes = computed(() => this.preview.value ?? this.history.value.now);
  readonly isChanged = computed(() => !areSame(this.history.value.now, this.base.value ?? NO_SHAPES));

  change(shapes: DrawnShapes, kind: string | null = null): void {
    this.preview.value = null;
    this.history.value = changed(this.history.value, shapes, kind);
  }

  undo(): void {
    this.history.value = undone(this.history.value);
  }

  redo(): void {
    this.history.value = redone(this.history.value);
  }

  /** The service has these now. Changes are kept: whose shapes stay is decided by whoever made them. */
  receive(found: SavedShapes): void {
    const base = this.base.value;
    if (this.isChanged.value && base && found.tag !== base.tag && !areSame(found, this.history.value.now)) {
      this.newer.value = found;
      return;
    }
    if (!this.isChanged.value) this.showSaved(found);
    this.base.value = found;
    this.newer.value = null;
  }

  async load(api: Api, detector: string): Promise<SavedShapes | null> {
    try {
      const found = await api.shapes(detector);
      this.problem.value = null;
      this.receive(found);
      return found;
    } catch (error) {
      this.problem.value = problemOf(error);
      return null;
    }
  }

  /** Gives what the service has then; null if it did not take it. */
  async save(api: Api, detector: string): Promise<SavedShapes | null> {
    const base = this.base.value;
    if (!base || this.isBusy.value) return null;
    this.isBusy.value = true;
    this.problem.value = null;
    try {
      const found = await api.saveShapes(detector, this.history.value.now, base.tag);
      this.base.value = found;
      this.newer.value = null;
      return found;
    } catch (error) {
      const problem = problemOf(error);
      if (problem.code === "stale_shapes") await this.load(api, detector);
      // What others have saved may be the same, and then nothing is left to decide.
      if (!this.newer.value) this.problem.value = problem;
      return null;
    } finally {
      this.isBusy.value = false;
    }
  }

  /** Theirs in the place of what was drawn here, which can be undone. */
  takeTheirs(): void {
    const theirs = this.newer.value;
    if (!theirs) return;
    this.change(only(theirs));
    this.base.value = theirs;
    this.newer.value = null;
  }

  /** What was drawn here in the place of theirs. */
  async writeOver(api: Api, detector: string): Promise<SavedShapes | null> {
    this.base.value = this.newer.value ?? this.base.value;
    this.newer.value = null;
    return this.save(api, detector);
  }

  /** As the service has it; that can be undone. */
  discard(): void {
    this.change(only(this.base.value ?? NO_SHAPES));
  }

  private showSaved(found: SavedShapes): void {
    const { history, base } = this;
    if (base.value === null) history.value = begun(only(found));
    else if (!areSame(found, history.value.now)) history.value = changed(history.value, only(found));
  }
}
