// What the image canvas shows: which image, which part of it, in which colours. Kept while other pages are open.

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { Connection, FrameRequest } from "../live/types";
import type { SavedShapes } from "../shapes/model";
import { type Capture, isCapture } from "./capture";
import { type Frame, FrameDecoder, type FrameHeader, indexOfPixel, sequenceOf } from "./frame";
import { beamCentre, type Point, scattering } from "./geometry";
import { type Contrast, LOOK_AT_FIRST, type Look, sensible } from "./lut";
import type { ModuleMap } from "./modules";
import { Playback } from "./playback";
import type { RendererKind } from "./renderer";
import { ONE_IMAGE, type StackChoice, stackOf, writeStack } from "./stack";
import type { Tool } from "./tool";
import {
  centred,
  centreOf,
  fitted,
  isStrip,
  kept,
  PIXELS_LEAST,
  PIXELS_MOST,
  type Size,
  snapped,
  stretched,
  toImage,
  type View,
  wantedFrame,
} from "./view";

export type Source = "latest" | "hit" | number;

export interface Layers {
  spots: boolean;
  rings: boolean;
  ice: boolean;
  beam: boolean;
  /** Outlines of the modules. */
  modules: boolean;
  regions: boolean;
}

const LAYERS_AT_FIRST: Layers = {
  ...{ spots: true, rings: false, ice: false, beam: true },
  ...{ modules: false, regions: true },
};

const CONTRAST_UNTIL_KNOWN: Contrast = { low: 0, high: 10 };
export const HZ_MAX = 10;

/** Numbers of the images that can be shown. */
export interface Extent {
  first: number;
  last: number;
}

export class Viewer {
  readonly source = signal<Source>("latest");
  /** The master of a finished file of which the images are; null: the newest images. */
  readonly file = signal<string | null>(null);
  /** How many images the file has; null until that is known. */
  readonly fileImages = signal<number | null>(null);
  readonly stack = signal<StackChoice>(ONE_IMAGE);
  /** Null: all of the image, also when the window changes. */
  readonly view: Signal<View | null>;
  readonly canvas = signal<Size>({ width: 0, height: 0 });
  readonly pixelRatio = signal(1);
  /** Null until a frame with levels comes, or somebody sets it. Frames never change it afterwards. */
  readonly contrast: Signal<Contrast | null>;
  readonly look: Signal<Look>;
  readonly layers: Signal<Layers>;
  /** Spacing of one more ring. */
  readonly ringAngstrom: Signal<number | null>;
  /** Whether that ring goes through the pointer. */
  readonly ringFollows: Signal<boolean>;
  /** Where the pointer is, on the screen. */
  readonly pointer: Signal<Point | null>;
  /** Where the modules are; null if that is not known. */
  readonly modules: Signal<ModuleMap | null>;
  /** The drawn mask and the regions; null if they are not known. */
  readonly shapes: Signal<SavedShapes | null>;
  /** What takes the pointer instead of zoom and pan. */
  readonly tool = signal<Tool | null>(null);
  /** An image that stays at the left. */
  readonly reference = signal<Viewer | null>(null);
  /** The frame that becomes the reference, while it is asked for. */
  readonly capture = signal<Capture | null>(null);
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
  /** Plays a file. */
  readonly playback = new Playback(this);

  frame: Frame | null = null;
  /** The message of that frame. */
  message: ArrayBuffer | null = null;
  /** What is seen, as one picture; null while there is no canvas. */
  picture: (() => HTMLCanvasElement) | null = null;
  /** The curves that stand above the picture; null where there are none. */
  curves: HTMLCanvasElement | null = null;
  private readonly shownHeader: Signal<FrameHeader | null> = signal(null);
  private readonly decoder = new FrameDecoder();
  private waiting: ArrayBuffer | null = null;
  private seenSize: string | null = null;
  private seenKind: string | null = null;
  /** What was shown when another stack was chosen, until it is shown. */
  private stackBefore: string | null = null;

  /** With `main` it shows one frame beside that viewer, in the same view and colours. */
  constructor(
    readonly connection: Connection,
    readonly main: Viewer | null = null,
  ) {
    this.header = this.shownHeader;
    this.view = main?.view ?? signal(null);
    this.contrast = main?.contrast ?? signal(null);
    this.look = main?.look ?? signal(LOOK_AT_FIRST);
    this.layers = main?.layers ?? signal(LAYERS_AT_FIRST);
    this.ringAngstrom = main?.ringAngstrom ?? signal(null);
    this.ringFollows = main?.ringFollows ?? signal(false);
    this.pointer = main?.pointer ?? signal(null);
    this.modules = main?.modules ?? signal(null);
    this.shapes = main?.shapes ?? signal(null);
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
    if (this.main) {
      this.main.changeView(change);
      return;
    }
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

  /** What is in the middle stays there. */
  resize(canvas: Size): void {
    const before = this.canvas.value;
    if (before.width === canvas.width && before.height === canvas.height) return;
    const view = this.view.value;
    this.canvas.value = canvas;
    if (view && before.width > 0) this.view.value = centred(view, canvas, centreOf(view, before));
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

  /** The images that can be shown; null if that is not known. */
  extent(): Extent | null {
    if (this.file.value === null) return this.connection.ring.value;
    const images = this.fileImages.value;
    return images === null || images === 0 ? null : { first: 0, last: images - 1 };
  }

  /** Another stack has other numbers, so it sets the contrast once. */
  chooseStack(stack: StackChoice): void {
    if (writeStack(stack) === writeStack(this.stack.value)) return;
    const header = this.shownHeader.value;
    this.stackBefore = header && stackOf(header);
    this.stack.value = stack;
  }

  openFile(file: string, image: number): void {
    if (this.file.value !== file) this.fileImages.value = null;
    this.file.value = file;
    this.source.value = image;
  }

  /** Back to the newest images. */
  closeFile(): void {
    this.playback.stop();
    this.file.value = null;
    this.fileImages.value = null;
    this.source.value = "latest";
  }

  /** The pointer is there now. */
  pointTo(at: Point | null): void {
    this.pointer.value = at;
    const view = this.actualView();
    const geometry = this.shownHeader.value?.geometry;
    if (!at || !view || !geometry || !this.ringFollows.value) return;
    const { dAngstrom } = scattering(geometry, toImage(view, at));
    if (dAngstrom !== null) this.ringAngstrom.value = dAngstrom;
  }

  /** A ring through the pointer, or none. */
  toggleRing(): void {
    const isOn = !this.ringFollows.value;
    this.ringFollows.value = isOn;
    if (isOn) this.pointTo(this.pointer.value);
    else this.ringAngstrom.value = null;
  }

  /** Whether there is another image beside this one. */
  isBesideOther(): boolean {
    return this.main !== null || this.reference.value !== null;
  }

  /** Number of the image that is asked for, or shown if that is the newest one; null if there is none. */
  currentImage(): number | null {
    const source = this.source.value;
    return typeof source === "number" ? source : (this.shownHeader.value?.image ?? null);
  }

  /** Keeps the image, or shows the newest ones again; plays a file, or stops. */
  toggleFreeze(): void {
    if (this.file.value !== null) {
      this.playback.toggle();
      return;
    }
    const image = this.shownHeader.value?.image;
    if (this.source.value !== "latest") this.source.value = "latest";
    else if (image !== undefined) this.source.value = image;
  }

  /** Goes by so many images from the one that is shown; nowhere where no image can be. */
  step(images: number): void {
    const now = this.currentImage();
    if (now !== null) this.goTo(now + images);
  }

  goTo(image: number): void {
    this.playback.stop();
    const extent = this.extent();
    const inside = extent ? Math.min(extent.last, Math.max(extent.first, image)) : image;
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
      if (this.capture.value && isCapture(this.capture.value, message)) {
        this.capture.value.take(message);
        return sequenceOf(message);
      }
      const frame = this.decoder.decode(message);
      if (this.isWanted(frame.header)) this.show(frame, message);
      this.problem.value = null;
      return frame.header.sequence;
    } catch (error) {
      this.problem.value = error instanceof Error ? error.message : String(error);
      return sequenceOf(message);
    }
  }

  /** What to ask the service for now. */
  request(): FrameRequest {
    if (this.capture.value) return this.capture.value.request;
    const what = this.requestOf(this.source.value);
    const ratio = this.pixelRatio.value;
    const view = this.actualView();
    const { width, height } = this.canvas.value;
    // Curves need each pixel.
    if (this.image && isStrip(this.image)) return { ...what, region: null, pixels_max: PIXELS_MOST };
    if (view && this.image) {
      return { ...what, ...wantedFrame(view, this.canvas.value, this.image, ratio) };
    }
    const dots = Math.ceil(width * height * ratio * ratio);
    return { ...what, region: null, pixels_max: Math.min(PIXELS_MOST, Math.max(PIXELS_LEAST, dots)) };
  }

  /** The image alone, without the part of it. */
  requestOf(source: Source): FrameRequest {
    const [channel, file, stack] = [this.channel.value, this.file.value, this.stack.value];
    return {
      // The newest hit is one of the live images.
      image: file !== null && source === "hit" ? "latest" : source,
      hz_max: HZ_MAX,
      ...(channel === null ? {} : { channel }),
      ...(file === null ? {} : { file }),
      ...(stack.images > 1 ? { stack } : {}),
    };
  }

  /** A frame that was on its way when something else was chosen is none that is wanted. */
  private isWanted(header: FrameHeader): boolean {
    if (this.main) return true;
    const shown = this.connection.detector.value;
    return (shown === null || header.detector === shown) && (header.file ?? null) === this.file.value;
  }

  /** As it was chosen: small steps of the pointer add up, which they would not if each was rounded. */
  private exactView(): View | null {
    if (this.main) return this.main.exactView();
    const canvas = this.canvas.value;
    if (!this.image || canvas.width === 0 || canvas.height === 0) return null;
    const view = this.view.value ?? fitted(this.image, canvas);
    return isStrip(this.image) ? stretched(view, this.image, canvas) : view;
  }

  private show(frame: Frame, message: ArrayBuffer): void {
    const { header } = frame;
    this.frame = frame;
    this.message = message;
    if (this.main) {
      this.shownHeader.value = header;
      return;
    }
    // A view or contrast of another detector means nothing here; those of an address are kept for the first frame.
    const size = `${header.detector} ${header.columns} ${header.rows}`;
    if (this.seenSize !== null && this.seenSize !== size) this.view.value = null;
    const kind = `${header.detector} ${header.coding}`;
    if (this.seenKind !== null && this.seenKind !== kind) this.contrast.value = null;
    if (this.stackBefore !== null && this.stackBefore !== stackOf(header)) {
      this.stackBefore = null;
      this.contrast.value = null;
    }
    this.seenSize = size;
    this.seenKind = kind;
    this.shownHeader.value = header;
    if (this.contrast.value === null) this.autoContrast();
  }

  private forget(): void {
    this.channel.value = null;
    this.waiting = null;
    this.frame = null;
    this.message = null;
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
