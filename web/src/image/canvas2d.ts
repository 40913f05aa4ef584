// Draws frames without WebGL: colours on the processor, then one scaled copy.

import type { Codes } from "./pool";
import type { Placement, Renderer } from "./renderer";

export class Canvas2dRenderer implements Renderer {
  readonly kind = "2d";
  readonly isLost = false;
  private readonly context: CanvasRenderingContext2D;
  private readonly picture = document.createElement("canvas");
  private readonly pictureContext: CanvasRenderingContext2D;
  private data: ImageData | null = null;
  private codes: Codes | null = null;
  private lut: Uint32Array | null = null;
  private isColoured = false;

  constructor(private readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext("2d");
    const pictureContext = this.picture.getContext("2d");
    if (!context || !pictureContext) throw new Error("this browser cannot draw on a canvas");
    this.context = context;
    this.pictureContext = pictureContext;
  }

  setCodes(codes: Codes): void {
    this.codes = codes;
    this.isColoured = false;
  }

  setLut(lut: Uint32Array): void {
    this.lut = lut;
    this.isColoured = false;
  }

  draw({ left, top, dot, rowDot, right, bottom }: Placement): void {
    this.clear();
    const { codes, context } = this;
    if (!codes || !this.lut) return;
    this.colour(codes, this.lut);
    // Only the visible dots: a large picture far outside of the canvas would lose precision.
    const first = Math.max(0, Math.floor(-left / dot));
    const firstRow = Math.max(0, Math.floor(-top / rowDot));
    const columns = Math.min(codes.columns, Math.ceil((this.canvas.width - left) / dot)) - first;
    const rows = Math.min(codes.rows, Math.ceil((this.canvas.height - top) / rowDot)) - firstRow;
    if (columns <= 0 || rows <= 0) return;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    context.imageSmoothingEnabled = false;
    const [x, y] = [left + first * dot, top + firstRow * rowDot];
    context.drawImage(this.picture, first, firstRow, columns, rows, x, y, columns * dot, rows * rowDot);
    context.restore();
  }

  clear(): void {
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  readPixel(x: number, y: number): [number, number, number] | null {
    const [red, green, blue, alpha] = this.context.getImageData(x, y, 1, 1).data;
    return alpha ? [red as number, green as number, blue as number] : null;
  }

  dispose(): void {
    this.data = null;
    this.codes = null;
    this.picture.width = 0;
  }

  private colour({ codes, columns, rows }: Codes, lut: Uint32Array): void {
    if (this.isColoured) return;
    if (this.data?.width !== columns || this.data.height !== rows) {
      this.data = this.pictureContext.createImageData(columns, rows);
      this.picture.width = columns;
      this.picture.height = rows;
    }
    const colours = new Uint32Array(this.data.data.buffer);
    for (let n = 0; n < colours.length; n++) colours[n] = lut[codes[n] as number] as number;
    this.pictureContext.putImageData(this.data, 0, 0);
    this.isColoured = true;
  }
}
