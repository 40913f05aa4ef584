// Outlines above the image: modules, regions, and the drawn mask.

import type { DrawnShapes } from "../shapes/model";
import { cssColour, SPECIAL_COLOURS } from "./colours";
import type { FrameHeader } from "./frame";
import { beamCentre } from "./geometry";
import { LABEL_HEIGHT, strokeTwice, writeText } from "./labels";
import { type ModuleMap, modulesOf } from "./modules";
import { outline } from "./shapes";
import { rowScaleOf, type Size, toScreen, type View } from "./view";

const MODULE = "#d0a2ff";
export const REGION_COLOUR = "#ffe14d";
export const MASK_COLOUR = cssColour(SPECIAL_COLOURS.masked);
/** A module that is smaller on the screen has no room for its number. */
const NAMED_FROM_PX = 24;

export interface Outlined {
  header: FrameHeader;
  view: View;
  canvas: Size;
  modules: ModuleMap | null;
  shapes: DrawnShapes | null;
}

export function drawModules(context: CanvasRenderingContext2D, on: Outlined): void {
  const modules = modulesOf(on.modules, on.header);
  const { view } = on;
  context.beginPath();
  for (const { column, row, columns, rows } of modules) {
    const { x, y } = toScreen(view, { x: column, y: row });
    context.rect(x, y, columns * view.scale, rows * rowScaleOf(view));
  }
  strokeTwice(context, MODULE, 1.5);
  for (const { index, column, row, columns, rows } of modules) {
    if (Math.min(columns * view.scale, rows * rowScaleOf(view)) < NAMED_FROM_PX) continue;
    const { x, y } = toScreen(view, { x: column, y: row });
    writeText(context, String(index), { x: x + 5, y: y + LABEL_HEIGHT / 2 + 4 }, MODULE);
  }
}

/** Shapes are those of the detector, so images of files, which may be of another one, have none. */
const shapesOf = ({ header, shapes }: Outlined): DrawnShapes | null => (header.file ? null : shapes);

const pathOf = (context: CanvasRenderingContext2D, { view, header }: Outlined) => ({
  context,
  view,
  beam: header.geometry && beamCentre(header.geometry),
});

export function drawRegions(context: CanvasRenderingContext2D, on: Outlined): void {
  const path = pathOf(context, on);
  context.beginPath();
  const names = (shapesOf(on)?.regions ?? []).flatMap(({ name, shape }) => {
    const place = outline(path, shape);
    return place ? [{ name, place }] : [];
  });
  strokeTwice(context, REGION_COLOUR, 1.5);
  for (const { name, place } of names) {
    const at = { x: Math.max(4, place.x), y: Math.max(LABEL_HEIGHT / 2 + 2, place.y - LABEL_HEIGHT / 2) };
    writeText(context, name, at, REGION_COLOUR);
  }
}

/** Dashed, since what it masks is masked from the next run on only. */
export function drawMask(context: CanvasRenderingContext2D, on: Outlined): void {
  const path = pathOf(context, on);
  context.beginPath();
  for (const shape of shapesOf(on)?.mask ?? []) outline(path, shape);
  context.setLineDash([7, 4]);
  strokeTwice(context, MASK_COLOUR, 2);
  context.setLineDash([]);
}
