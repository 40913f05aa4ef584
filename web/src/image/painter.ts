// Draws the frame and what lies above it, at most once for each picture of the screen.

import { effect } from "@preact/signals";
import { shade } from "../app/plot";
import { cellsAndLayers } from "./above";
import { makeRenderer } from "./choose";
import { CODES } from "./code16";
import type { Frame } from "./frame";
import { RingCache } from "./layers";
import { fillLut } from "./lut";
import { type Codes, pooled, shrinkFactor } from "./pool";
import type { Placement, Renderer, RendererKind } from "./renderer";
import { CURVES_LEFT_PX } from "./rowCurves";
import { rowScaleOf, toScreen, type View } from "./view";
import type { Viewer } from "./viewer";

/** A graphics card that does not come back within this time is given up. */
const LOST_MAX_MS = 2000;

function isInRegion({ header }: Frame, column: number, row: number): boolean {
  const [left, top, columns, rows] = header.region;
  return column >= left && row >= top && column < left + columns && row < top + rows;
}

/** The dot of the screen in the middle of a dot of the frame: one whose centre lies within. */
function screenDot(begin: number, side: number, place: number): number {
  const from = begin + place * side;
  const middle = Math.floor(from + side / 2);
  return middle + 0.5 < from + side && middle + 0.5 >= from ? middle : Math.ceil(from - 0.5);
}

/** Rows that are stretched are never put together. */
const rowFactor = (view: View, factor: number): number => (view.rowScale === undefined ? factor : 1);

export class Painter {
  private readonly renderer: Renderer;
  private readonly above: CanvasRenderingContext2D;
  private readonly lut = new Uint32Array(CODES);
  private readonly rings = new RingCache();
  private readonly stops: (() => void)[] = [];
  private scheduled = 0;
  private lutKey = "";
  private shrunk: Uint16Array | null = null;
  private drawnFrame: Frame | null = null;
  private drawnFactor = 0;
  private giveUp: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly viewer: Viewer,
    private readonly canvas: HTMLCanvasElement,
    private readonly overlay: HTMLCanvasElement,
    kind: RendererKind,
    private readonly onLost: () => void,
  ) {
    const above = overlay.getContext("2d");
    if (!above) throw new Error("this browser cannot draw on a canvas");
    this.above = above;
    this.renderer = makeRenderer(canvas, kind, () => this.invalidate());
    viewer.renderer.value = this.renderer.kind;
    this.stops.push(effect(() => this.follow()));
    this.stops.push(
      effect(() => {
        viewer.take(viewer.connection.frame.value);
        this.invalidate();
      }),
    );
  }

  invalidate(): void {
    if (this.scheduled === 0) this.scheduled = requestAnimationFrame(() => this.paint());
  }

  /** The colour of the pixel of the image with this column and row as it is on the screen; null if it is not there. */
  readPixel(column: number, row: number): [number, number, number] | null {
    const view = this.viewer.actualView();
    const { frame } = this.viewer;
    if (!view || !frame || !isInRegion(frame, column, row)) return null;
    this.drawFrame(view);
    const { left, top, dot, rowDot } = this.placement(frame, view, this.drawnFactor);
    const { bin, region } = frame.header;
    const x = screenDot(left, dot, Math.floor((column - region[0]) / (bin * this.drawnFactor)));
    const y = screenDot(top, rowDot, Math.floor((row - region[1]) / (bin * rowFactor(view, this.drawnFactor))));
    if (x < 0 || y < 0 || x >= this.canvas.width || y >= this.canvas.height) return null;
    return this.renderer.readPixel(x, y);
  }

  /** What is seen, as one picture. */
  picture(): HTMLCanvasElement {
    const view = this.viewer.actualView();
    if (view) this.drawFrame(view);
    const { curves } = this.viewer;
    const [left, top] = curves ? [CURVES_LEFT_PX * this.viewer.pixelRatio.value, curves.height] : [0, 0];
    const picture = document.createElement("canvas");
    picture.width = curves?.width ?? this.canvas.width;
    picture.height = top + this.canvas.height;
    const context = picture.getContext("2d");
    if (!context) return picture;
    if (curves) {
      context.fillStyle = shade("--surface")();
      context.fillRect(0, 0, picture.width, picture.height);
      context.drawImage(curves, 0, 0);
    }
    context.drawImage(this.canvas, left, top);
    context.drawImage(this.overlay, left, top);
    return picture;
  }

  dispose(): void {
    for (const stop of this.stops) stop();
    cancelAnimationFrame(this.scheduled);
    clearTimeout(this.giveUp);
    this.renderer.dispose();
  }

  /** Reads all that the picture depends on, so that it is drawn again when something changes. */
  private follow(): void {
    const { viewer } = this;
    const { view, canvas, pixelRatio, contrast, look, layers, ringAngstrom, box, header, modules, shapes } = viewer;
    for (const one of [view, canvas, pixelRatio, contrast, look, layers, ringAngstrom, box, header]) void one.value;
    void [
      modules.value,
      shapes.value,
      viewer.isBesideOther() && viewer.pointer.value,
      viewer.tool.value?.version.value,
    ];
    this.invalidate();
  }

  private paint(): void {
    this.scheduled = 0;
    this.watchLoss();
    const sequence = this.viewer.decodeWaiting();
    this.resize();
    const view = this.viewer.actualView();
    if (view) this.drawFrame(view);
    else this.renderer.clear();
    this.drawAbove(view);
    if (sequence !== null) this.viewer.connection.acknowledge(sequence);
  }

  private watchLoss(): void {
    if (this.renderer.isLost) {
      this.giveUp ??= setTimeout(this.onLost, LOST_MAX_MS);
    } else {
      clearTimeout(this.giveUp);
      this.giveUp = undefined;
    }
  }

  private resize(): void {
    const { width, height } = this.viewer.canvas.value;
    const ratio = this.viewer.pixelRatio.value;
    const [columns, rows] = [Math.round(width * ratio), Math.round(height * ratio)];
    for (const canvas of [this.canvas, this.overlay]) {
      if (canvas.width !== columns) canvas.width = columns;
      if (canvas.height !== rows) canvas.height = rows;
      // Else the browser mixes neighbouring dots.
      canvas.style.width = `${columns / ratio}px`;
      canvas.style.height = `${rows / ratio}px`;
    }
  }

  private drawFrame(view: View): void {
    const { frame } = this.viewer;
    if (!frame) {
      this.renderer.clear();
      return;
    }
    this.renewLut(frame);
    const dot = frame.header.bin * view.scale * this.viewer.pixelRatio.value;
    const factor = shrinkFactor(dot);
    this.renewCodes(frame, factor, rowFactor(view, factor));
    this.renderer.draw(this.placement(frame, view, factor));
  }

  private placement({ header }: Frame, view: View, factor: number): Placement {
    const [column, row, columns, rows] = header.region;
    const ratio = this.viewer.pixelRatio.value;
    const begin = toScreen(view, { x: column, y: row });
    const end = toScreen(view, { x: column + columns, y: row + rows });
    const dot = header.bin * factor * view.scale * ratio;
    const rowDot = header.bin * rowFactor(view, factor) * rowScaleOf(view) * ratio;
    const [left, top] = [begin.x * ratio, begin.y * ratio];
    const dots = (pixels: number, rowsOrColumns: number) => Math.ceil(pixels / (header.bin * rowsOrColumns));
    // The last square may be a part of one, and is still seen: a dot of the screen has its middle within it.
    const whole = (from: number, count: number, side: number, to: number) =>
      Math.max(Math.ceil(to * ratio - 1e-6), Math.ceil(from + (count - 1) * side - 0.5) + 1);
    const right = whole(left, dots(columns, factor), dot, end.x);
    const bottom = whole(top, dots(rows, rowFactor(view, factor)), rowDot, end.y);
    return { left, top, dot, rowDot, right, bottom };
  }

  private renewLut({ header }: Frame): void {
    const contrast = this.viewer.actualContrast();
    const look = this.viewer.look.value;
    const key = JSON.stringify([contrast, look, header.coding]);
    if (key === this.lutKey) return;
    this.lutKey = key;
    fillLut(this.lut, contrast, look, header.coding);
    this.renderer.setLut(this.lut);
  }

  private renewCodes(frame: Frame, factor: number, rows: number): void {
    if (frame === this.drawnFrame && factor === this.drawnFactor) return;
    const { codes, header } = frame;
    let drawn: Codes = { codes, columns: header.frame_columns, rows: header.frame_rows };
    if (factor > 1) {
      drawn = pooled(drawn, factor, this.shrunk, rows);
      this.shrunk = drawn.codes;
    }
    this.renderer.setCodes(drawn);
    this.drawnFrame = frame;
    this.drawnFactor = factor;
  }

  private drawAbove(view: View | null): void {
    const ratio = this.viewer.pixelRatio.value;
    this.above.setTransform(1, 0, 0, 1, 0, 0);
    this.above.clearRect(0, 0, this.overlay.width, this.overlay.height);
    // Where nothing is drawn after that, Chromium 156 shows an older picture again; this dot is too faint to be seen.
    this.above.fillStyle = "rgba(0, 0, 0, 0.01)";
    this.above.fillRect(0, 0, 1, 1);
    this.above.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (view) cellsAndLayers(this.above, this.viewer, view, this.lut, this.rings);
  }
}
