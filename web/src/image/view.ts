// What part of the image is on the screen. All places on the screen are CSS pixels from the corner of the canvas.

import type { Region } from "./frame";
import type { Point } from "./geometry";

export interface Size {
  width: number;
  height: number;
}

export interface View {
  /** The place in the image at the corner of the canvas. */
  x: number;
  y: number;
  /** CSS pixels for one pixel of the image. */
  scale: number;
  /** The same from row to row, where rows are higher than columns are wide. */
  rowScale?: number;
}

const STRIP_ROWS_MOST = 8;
const STRIP_COLUMNS_LEAST = 16;

/** Whether an image has so few rows that it would be a thin line: it is shown as curves, with its rows stretched. */
export const isStrip = ({ width, height }: Size): boolean =>
  height <= STRIP_ROWS_MOST && width >= STRIP_COLUMNS_LEAST * height;

export const rowScaleOf = ({ scale, rowScale }: View): number => rowScale ?? scale;

/** All rows on the canvas, whatever columns of them are seen. */
export const stretched = (view: View, image: Size, canvas: Size): View => ({
  ...view,
  y: 0,
  rowScale: canvas.height / image.height,
});

export const SCALE_MAX = 200;
const SCALE_MIN = 1 / 256;

const limited = (scale: number) => Math.min(SCALE_MAX, Math.max(SCALE_MIN, scale));

export function toScreen(view: View, point: Point): Point {
  return { x: (point.x - view.x) * view.scale, y: (point.y - view.y) * rowScaleOf(view) };
}

export function toImage(view: View, point: Point): Point {
  return { x: view.x + point.x / view.scale, y: view.y + point.y / rowScaleOf(view) };
}

function about(canvas: Size, centre: Point, scale: number): View {
  return { x: centre.x - canvas.width / 2 / scale, y: centre.y - canvas.height / 2 / scale, scale };
}

/** So that the last dot of a strip, which may be a part of one, has a dot of the screen. */
const EDGE_PX = 1;

/** The whole image in the middle of the canvas. */
export function fitted(image: Size, canvas: Size): View {
  const across = canvas.width / image.width;
  const ofStrip = (canvas.width - EDGE_PX) / image.width;
  const scale = limited(isStrip(image) ? ofStrip : Math.min(across, canvas.height / image.height));
  return about(canvas, { x: image.width / 2, y: image.height / 2 }, scale);
}

/** The place in the image in the middle of the canvas. */
export function centreOf(view: View, canvas: Size): Point {
  return toImage(view, { x: canvas.width / 2, y: canvas.height / 2 });
}

/** This place of the image in the middle of the canvas. */
export function centred(view: View, canvas: Size, centre: Point, scale = view.scale): View {
  return about(canvas, centre, limited(scale));
}

/** Nearer or further; what is at this place of the screen stays there. */
export function zoomed(view: View, at: Point, factor: number): View {
  const scale = limited(view.scale * factor);
  const fixed = toImage(view, at);
  return { x: fixed.x - at.x / scale, y: fixed.y - at.y / scale, scale };
}

/** The nearest view with whole dots of the screen before its corner: else dots of the frame end in the middle of those of
 * the screen, and which of two is seen is left to chance. */
export function snapped(view: View, pixelRatio: number): View {
  const dots = view.scale * pixelRatio;
  return { ...view, x: Math.round(view.x * dots) / dots, y: Math.round(view.y * dots) / dots };
}

export function panned(view: View, dx: number, dy: number): View {
  return { ...view, x: view.x - dx / view.scale, y: view.y - dy / view.scale };
}

/** The rectangle between two places of the screen, as large as possible. Unchanged if that is only a line; where all rows
 * are seen, only its columns count. */
export function boxed(view: View, canvas: Size, a: Point, b: Point): View {
  const width = Math.abs(a.x - b.x);
  const height = view.rowScale === undefined ? Math.abs(a.y - b.y) : canvas.height;
  if (width < 4 || height < 4) return view;
  const centre = toImage(view, { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 });
  const [across, down] = [canvas.width / width, canvas.height / height];
  return about(canvas, centre, limited(view.scale * (view.rowScale === undefined ? Math.min(across, down) : across)));
}

/** Keeps at least an edge of the image on the canvas, so that nobody gets lost. */
export function kept(view: View, image: Size, canvas: Size): View {
  const edge = 40 / view.scale;
  const [width, height] = [canvas.width / view.scale, canvas.height / view.scale];
  const x = Math.min(
    image.width - Math.min(edge, image.width / 2),
    Math.max(view.x, Math.min(edge, image.width / 2) - width),
  );
  const y = Math.min(
    image.height - Math.min(edge, image.height / 2),
    Math.max(view.y, Math.min(edge, image.height / 2) - height),
  );
  return { ...view, x, y };
}

/** Pixels that are visible and a margin beside them, a part of what is visible; null if none is. */
export function visibleRegion(view: View, canvas: Size, image: Size, margin: number): Region | null {
  const [width, height] = [canvas.width / view.scale, canvas.height / view.scale];
  const left = Math.max(0, Math.floor(view.x - margin * width));
  const top = Math.max(0, Math.floor(view.y - margin * height));
  const right = Math.min(image.width, Math.ceil(view.x + (1 + margin) * width));
  const bottom = Math.min(image.height, Math.ceil(view.y + (1 + margin) * height));
  return right > left && bottom > top ? [left, top, right - left, bottom - top] : null;
}

export const PIXELS_LEAST = 4096;
/** Most pixels of a frame. */
export const PIXELS_MOST = 4194304;

/** What to ask the service for: no more dots than the screen has, and exact pixels where one pixel fills one dot. */
export function wantedFrame(
  view: View,
  canvas: Size,
  image: Size,
  pixelRatio: number,
): { region: Region | null; pixels_max: number } {
  const whole: Region = [0, 0, image.width, image.height];
  const region = visibleRegion(view, canvas, image, 0.1) ?? whole;
  const bin = Math.max(1, Math.ceil(1 / (view.scale * pixelRatio) - 1e-6));
  // Squares lie at multiples of their side, so there may be one more in each direction.
  const dots = (Math.ceil(region[2] / bin) + 1) * (Math.ceil(region[3] / bin) + 1);
  const isWhole = region.every((number, place) => number === whole[place]);
  return { region: isWhole ? null : region, pixels_max: Math.min(PIXELS_MOST, Math.max(PIXELS_LEAST, dots)) };
}
