// Which of the two renderers draws. WebGL without a graphics card is slower than the other one.

import { Canvas2dRenderer } from "./canvas2d";
import type { Renderer, RendererKind } from "./renderer";
import { WebglRenderer } from "./webgl";

/** By the query of the page (`?renderer=2d`), and by what WebGL2 says that it draws with; null: there is no WebGL2. */
export function wantedRenderer(query: string, drawsWith: string | null): RendererKind {
  const asked = new URLSearchParams(query).get("renderer");
  if (asked === "2d" || drawsWith === null) return "2d";
  if (asked === "webgl") return "webgl";
  return /swiftshader|llvmpipe|softpipe|software/i.test(drawsWith) ? "2d" : "webgl";
}

let known: string | null | undefined;

function drawsWith(): string | null {
  if (known !== undefined) return known;
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl?.getExtension("WEBGL_debug_renderer_info");
  known = gl ? String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER)) : null;
  gl?.getExtension("WEBGL_lose_context")?.loseContext();
  return known;
}

/** A renderer for a canvas that has none; `redraw` is called when a picture was lost. */
export function makeRenderer(canvas: HTMLCanvasElement, kind: RendererKind, redraw: () => void): Renderer {
  return kind === "webgl" ? new WebglRenderer(canvas, redraw) : new Canvas2dRenderer(canvas);
}

export function chosenRenderer(): RendererKind {
  return wantedRenderer(location.search, drawsWith());
}
