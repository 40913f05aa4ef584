// All that is drawn above the image, in its order.

import { drawCells } from "./cells";
import { strokeTwice } from "./labels";
import { drawLayers, type RingCache } from "./layers";
import type { View } from "./view";
import type { Viewer } from "./viewer";

function drawBox(context: CanvasRenderingContext2D, viewer: Viewer, isOfAllRows: boolean): void {
  const box = viewer.box.value;
  if (!box) return;
  const [from, to] = box;
  const [top, height] = isOfAllRows ? [0, viewer.canvas.value.height] : [from.y, to.y - from.y];
  for (const [colour, dash] of [
    ["#000", []],
    ["#fff", [5, 5]],
  ] as const) {
    context.setLineDash([...dash]);
    context.lineWidth = 1.5;
    context.strokeStyle = colour;
    context.strokeRect(from.x, top, to.x - from.x, height);
  }
  context.setLineDash([]);
}

/** Beside another image, the pointer is seen in both. */
function drawCross(context: CanvasRenderingContext2D, viewer: Viewer): void {
  const at = viewer.isBesideOther() ? viewer.pointer.value : null;
  if (!at) return;
  context.beginPath();
  for (const [dx, dy] of [
    [9, 0],
    [0, 9],
  ] as const) {
    context.moveTo(at.x - dx, at.y - dy);
    context.lineTo(at.x + dx, at.y + dy);
  }
  strokeTwice(context, "#fff", 1);
}

export function cellsAndLayers(
  context: CanvasRenderingContext2D,
  viewer: Viewer,
  view: View,
  lut: Uint32Array,
  rings: RingCache,
): void {
  const { frame } = viewer;
  const canvas = viewer.canvas.value;
  if (frame) {
    drawCells(context, frame, view, canvas, lut);
    const { header } = frame;
    const [layers, ringAngstrom] = [viewer.layers.value, viewer.ringAngstrom.value];
    const modules = viewer.modules.value;
    // An editor draws them itself, as they are going to be.
    const shapes = viewer.tool.value ? null : viewer.shapes.value;
    const { marksSpecial } = viewer.look.value;
    drawLayers(context, { header, view, canvas, layers, ringAngstrom, modules, shapes, marksSpecial }, rings);
  }
  viewer.tool.value?.draw(context, view);
  drawCross(context, viewer);
  drawBox(context, viewer, view.rowScale !== undefined);
}
