// What the image canvas shows: which image, which part of it, in which colours. Kept while other pages are open.

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Connection, FrameRequest } from "../live/types";
import { type Frame, FrameDecoder, type FrameHeader, indexOfPixel, sequenceOf } from "./frame";
import { beamCentre, type Point } from "./geometry";
import { type Contrast, LOOK_AT_FIRST, type Look, sensible } from "./lut";
import type { RendererKind } from "./renderer";
import { centred, fitted, kept, type Size, snapped, toImage, type View, wantedFrame } from "./view";

export type Source = "latest" | "hit" | number;

export interface Layers {
  spots: boolean;
  rings: boolean;
  ice: boolean;
  beam: boolean;
}

const CONTRAST_UNTIL_KNOWN: Contrast = { low: 0, high: 10 };
export const HZ_MAX = 10;

export class Viewer {
  readonly source = signal<Source>("latest");
  /** Null: all of the image, also when the window changes. */
  readonly view = signal<View | null>(null);
  readonly canvas = signal<Size>({ width: 0, height: 0 });
  readonly pixelRatio = signal(1);
  /** Null until a frame with levels comes, or somebody sets it. Frames never change it afterwards. */
  readonly contrast = signal<Contrast | null>(null);
  readonly look = signal<Look>(LOOK_AT_FIRST);
  readonly layers = signal<Layers>({ spots: true, rings: false, ice: false, beam: true });
  /** Spacing of the ring that follows the slider. */
  readonly ringAngstrom = signal<number | null>(null);
  /** Where the pointer is, on the screen. */
  readonly pointer = signal<Point | null>(null);
  /** The rectangle that is being drawn, on the screen. */
  readonly box = signal<[Point, Point] | null>(null);
  readonly header: ReadonlySignal<FrameHeader | null>;
  /** Why the last frame cannot be shown. */
  readonly problem = signal<string | null>(null);
  /** What went wrong with something else, until somebody closes it. */
  readonly note = signal<string | null>(null);
  /** Name of the channel; null: the first. */
  readonly channel = signal<string | null>(null);
  readonly renderer = signal<RendererKind>("2d");

  frame: Frame | null = null;
  /** What is seen, as one picture; null while there is no canvas. */
  picture: (() => HTMLCanvasElement) | null = null;
  private readonly shownHeader: Signal<FrameHeader | null> = signal(null);
  private readonly decoder = new FrameDecoder();
  private waiting: ArrayBuffer | null = null;
  private seenSize: string | null = null;
  private seenKind: string | null = null;

  constructor(readonly connection: Connection) {
    this.header = this.shownHeader;
  }

  get image(): Size | null {
    const header = this.shownHeader.value;
    return header && { width: header.columns, height: header.rows };
  }

  /** The view with numbers; null as long as the size of the image or of the canvas is not known. */
  actualView(): View | null {
    const view = this.exactView();
    return view && snapped(view, this.pixelRatio.value);
  }

  actualContrast(): Contrast {
    return this.contrast.value ?? CONTRAST_UNTIL_KNOWN;
  }

  changeView(change: (view: View, canvas: Size) => View): void {
    const view = this.exactView();
    if (view && this.image) this.view.value = kept(change(view, this.canvas.value), this.image, this.canvas.value);
  }

  fit(): void {
    this.view.value = null;
  }

  /** One pixel of the image for each dot of the screen. */
  oneToOne(): void {
    this.changeView((view, canvas) =>
      centred(view, canvas, toImage(view, { x: canvas.width / 2, y: canvas.height / 2 }), 1 / this.pixelRatio.value),
    );
  }

  showBeam(): void {
    const centre = this.beam();
    if (centre) this.changeView((view, canvas) => centred(view, canvas, centre));
  }

  beam(): Point | null {
    const geometry = this.shownHeader.value?.geometry;
    return geometry ? beamCentre(geometry) : null;
  }

  /** Sets the contrast by the frame that is shown, once. */
  autoContrast(): void {
    const levels = this.shownHeader.value?.levels;
    this.contrast.value = levels ? sensible({ low: levels[0], high: levels[1] }) : null;
  }

  setContrast(contrast: Contrast): void {
    this.contrast.value = sensible(contrast);
  }

  toggleFreeze(): void {
    const image = this.shownHeader.value?.image;
    if (this.source.value !== "latest") this.source.value = "latest";
    else if (image !== undefined) this.source.value = image;
  }

  /** Goes by so many images from the one that is shown; nowhere where no image can be. */
  step(images: number): void {
    const now = typeof this.source.value === "number" ? this.source.value : this.shownHeader.value?.image;
    if (now !== undefined) this.goTo(now + images);
  }

  goTo(image: number): void {
    const ring = this.connection.ring.value;
    const inside = ring ? Math.min(ring.last, Math.max(ring.first, image)) : image;
    if (Number.isSafeInteger(inside) && inside >= 0) this.source.value = inside;
  }

  /** Keeps a message until the next frame of the screen. */
  take(message: ArrayBuffer | null): void {
    if (message === null) {
      this.forget();
      return;
    }
    this.waiting = message;
  }

  /** Makes the message that waits the frame that is shown. Gives the number to acknowledge once it was drawn. */
  decodeWaiting(): number | null {
    const message = this.waiting;
    this.waiting = null;
    if (!message) return null;
    try {
      const frame = this.decoder.decode(message);
      const shown = this.connection.detector.value;
      if (shown === null || frame.header.detector === shown) this.show(frame);
      this.problem.value = null;
      return frame.header.sequence;
    } catch (error) {
      this.problem.value = error instanceof Error ? error.message : String(error);
      return sequenceOf(message);
    }
  }

  /** What to ask the service for now. */
  request(): FrameRequest {
    const channel = this.channel.value;
    const what = { image: this.source.value, hz_max: HZ_MAX, ...(channel === null ? {} : { channel }) };
    const ratio = this.pixelRatio.value;
    const view = this.actualView();
    const { width, height } = this.canvas.value;
    if (view && this.image) {
      return { ...what, ...wantedFrame(view, this.canvas.value, this.image, ratio) };
    }
    const dots = Math.ceil(width * height * ratio * ratio);
    return { ...what, region: null, pixels_max: Math.min(4194304, Math.max(4096, dots)) };
  }

  /** As it was chosen: small steps of the pointer add up, which they would not if each was rounded. */
  private exactView(): View | null {
    const canvas = this.canvas.value;
    if (!this.image || canvas.width === 0 || canvas.height === 0) return null;
    return this.view.value ?? fitted(this.image, canvas);
  }

  private show(frame: Frame): void {
    const { header } = frame;
    // A view or contrast of another detector means nothing here; those of an address are kept for the first frame.
    const size = `${header.detector} ${header.columns} ${header.rows}`;
    if (this.seenSize !== null && this.seenSize !== size) this.view.value = null;
    const kind = `${header.detector} ${header.coding}`;
    if (this.seenKind !== null && this.seenKind !== kind) this.contrast.value = null;
    this.seenSize = size;
    this.seenKind = kind;
    this.frame = frame;
    this.shownHeader.value = header;
    if (this.contrast.value === null) this.autoContrast();
  }

  private forget(): void {
    this.channel.value = null;
    this.waiting = null;
    this.frame = null;
    this.shownHeader.value = null;
  }
}

const viewers = new WeakMap<Connection, Viewer>();

/** The one viewer of a connection. */
export function viewerOf(connection: Connection): Viewer {
  const viewer = viewers.get(connection) ?? new Viewer(connection);
  viewers.set(connection, viewer);
  return viewer;
}

/** The place in the frame of a place in the image; null if the frame does not have it. */
export function indexAt(frame: Frame, point: Point): number | null {
  return indexOfPixel(frame.header, Math.floor(point.x), Math.floor(point.y));
}
