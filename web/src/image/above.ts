// All that is drawn above the image, in its order.

import { drawCells } from "./cells";
import { drawLayers, type RingCache } from "./layers";
import type { View } from "./view";
import type { Viewer } from "./viewer";

function drawBox(context: CanvasRenderingContext2D, viewer: Viewer): void {
  const box = viewer.box.value;
  if (!box) return;
  const [{ x, y }, to] = box;
  for (const [colour, dash] of [
    ["#000", []],
    ["#fff", [5, 5]],
  ] as const) {
    context.setLineDash([...dash]);
    context.lineWidth = 1.5;
    context.strokeStyle = colour;
    context.strokeRect(x, y, to.x - x, to.y - y);
  }
  context.setLineDash([]);
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
    drawLayers(context, { header, view, canvas, layers, ringAngstrom }, rings);
  }
  drawBox(context, viewer);
}
