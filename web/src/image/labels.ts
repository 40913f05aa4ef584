// Lines and texts that can be read on every image.

import type { Point } from "./geometry";
import type { Size } from "./view";

const HALO = "rgba(0, 0, 0, 0.55)";
export const LABEL_HEIGHT = 16;

type Context = CanvasRenderingContext2D;

export function strokeTwice(context: Context, colour: string, width: number): void {
  context.lineWidth = width + 2;
  context.strokeStyle = HALO;
  context.stroke();
  context.lineWidth = width;
  context.strokeStyle = colour;
  context.stroke();
}

function prepare(context: Context): void {
  context.font = "bold 14px system-ui, sans-serif";
  context.textAlign = "left";
  context.textBaseline = "middle";
}

/** A text that begins at this place and has it in the middle of its height. */
export function writeText(context: Context, text: string, { x, y }: Point, colour: string): void {
  prepare(context);
  context.lineWidth = 4;
  context.strokeStyle = "rgba(0, 0, 0, 0.8)";
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** Keeps labels off each other. */
export class Labels {
  private readonly taken: { x: number; y: number; width: number }[] = [];

  constructor(
    private readonly context: Context,
    private readonly canvas: Size,
  ) {
    prepare(context);
  }

  /** Writes at one of the points, if one is free: as far right and up as possible. */
  write(text: string, points: Point[], colour: string): void {
    const width = this.context.measureText(text).width + 8;
    const best = points
      .filter((point) => this.isFree(point, width))
      .reduce<Point | null>(
        (found, point) => (found === null || point.x - point.y > found.x - found.y ? point : found),
        null,
      );
    if (!best) return;
    this.taken.push({ ...best, width });
    writeText(this.context, text, { x: best.x + 4, y: best.y }, colour);
  }

  private isFree({ x, y }: Point, width: number): boolean {
    if (x < 0 || y < LABEL_HEIGHT / 2 || x + width > this.canvas.width || y + LABEL_HEIGHT / 2 > this.canvas.height)
      return false;
    return !this.taken.some(
      (other) => x < other.x + other.width && other.x < x + width && Math.abs(y - other.y) < LABEL_HEIGHT,
    );
  }
}
