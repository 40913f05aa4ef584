// Draws frames with WebGL2: the codes are a texture of whole numbers, the colours a second one.

import type { Codes } from "./pool";
import type { Placement, Renderer } from "./renderer";

const VERTEX = `#version 300 es
void main() {
  vec2 corner = vec2(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0);
  gl_Position = vec4(corner, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
precision highp int;
precision highp usampler2D;
uniform usampler2D codes;
uniform sampler2D lut;
uniform vec4 place;
uniform vec2 dotSides;
uniform float canvasHeight;
out vec4 colour;
void main() {
  vec2 at = vec2(gl_FragCoord.x, canvasHeight - gl_FragCoord.y);
  ivec2 cell = ivec2(floor((at - place.xy) / dotSides));
  ivec2 size = textureSize(codes, 0);
  bool outside = any(lessThan(cell, ivec2(0))) || any(greaterThanEqual(cell, size)) || any(greaterThan(at, place.zw));
  if (outside) {
    colour = vec4(0.0);
    return;
  }
  uint code = texelFetch(codes, cell, 0).r;
  colour = vec4(texelFetch(lut, ivec2(int(code & 255u), int(code >> 8)), 0).rgb, 1.0);
}`;

interface Resources {
  program: WebGLProgram;
  codes: WebGLTexture;
  lut: WebGLTexture;
  place: WebGLUniformLocation | null;
  dotSides: WebGLUniformLocation | null;
  canvasHeight: WebGLUniformLocation | null;
}

function shader(gl: WebGL2RenderingContext, kind: number, source: string): WebGLShader {
  const made = gl.createShader(kind);
  if (!made) throw new Error("WebGL2 cannot make a shader");
  gl.shaderSource(made, source);
  gl.compileShader(made);
  return made;
}

function texture(gl: WebGL2RenderingContext, unit: number): WebGLTexture {
  const made = gl.createTexture();
  gl.activeTexture(gl.TEXTURE0 + unit);
  gl.bindTexture(gl.TEXTURE_2D, made);
  for (const filter of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
    gl.texParameteri(gl.TEXTURE_2D, filter, gl.NEAREST);
  for (const wrap of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, wrap, gl.CLAMP_TO_EDGE);
  return made;
}

function makeResources(gl: WebGL2RenderingContext): Resources {
  const program = gl.createProgram();
  gl.attachShader(program, shader(gl, gl.VERTEX_SHADER, VERTEX));
  gl.attachShader(program, shader(gl, gl.FRAGMENT_SHADER, FRAGMENT));
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
    throw new Error(`WebGL2 cannot draw frames: ${gl.getProgramInfoLog(program)}`);
  }
  gl.useProgram(program);
  gl.uniform1i(gl.getUniformLocation(program, "codes"), 0);
  gl.uniform1i(gl.getUniformLocation(program, "lut"), 1);
  const place = gl.getUniformLocation(program, "place");
  const dotSides = gl.getUniformLocation(program, "dotSides");
  const canvasHeight = gl.getUniformLocation(program, "canvasHeight");
  return { program, codes: texture(gl, 0), lut: texture(gl, 1), place, dotSides, canvasHeight };
}

export class WebglRenderer implements Renderer {
  readonly kind = "webgl";
  isLost = false;
  private readonly gl: WebGL2RenderingContext;
  private resources: Resources;
  private codes: Codes | null = null;
  private lut: Uint32Array | null = null;
  /** What the textures have; kept so that textures of the same size are filled and not made anew. */
  private size: [columns: number, rows: number] = [0, 0];
  private hasCodes = false;
  private hasLut = false;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly redraw: () => void,
  ) {
    const gl = canvas.getContext("webgl2", { antialias: false, depth: false, premultipliedAlpha: true });
    if (!gl) throw new Error("this browser has no WebGL2");
    this.gl = gl;
    this.resources = makeResources(gl);
    canvas.addEventListener("webglcontextlost", this.lost);
    canvas.addEventListener("webglcontextrestored", this.restored);
  }

  setCodes(codes: Codes): void {
    this.codes = codes;
    this.hasCodes = false;
  }

  setLut(lut: Uint32Array): void {
    this.lut = lut;
    this.hasLut = false;
  }

  draw({ left, top, dot, rowDot, right, bottom }: Placement): void {
    const { gl, canvas, codes, lut } = this;
    if (this.isLost) return;
    if (!codes || !lut) {
      this.clear();
      return;
    }
    if (!this.hasCodes) this.uploadCodes(codes);
    if (!this.hasLut) this.uploadLut(lut);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.uniform4f(this.resources.place, left, top, right, bottom);
    gl.uniform2f(this.resources.dotSides, dot, rowDot);
    gl.uniform1f(this.resources.canvasHeight, canvas.height);
    gl.drawArrays(gl.TRIANGLES, 0, 3);
  }

  clear(): void {
    this.gl.clearColor(0, 0, 0, 0);
    this.gl.clear(this.gl.COLOR_BUFFER_BIT);
  }

  readPixel(x: number, y: number): [number, number, number] | null {
    const { gl } = this;
    const colour = new Uint8Array(4);
    gl.readPixels(x, this.canvas.height - 1 - y, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, colour);
    return colour[3] ? [colour[0] as number, colour[1] as number, colour[2] as number] : null;
  }

  dispose(): void {
    this.canvas.removeEventListener("webglcontextlost", this.lost);
    this.canvas.removeEventListener("webglcontextrestored", this.restored);
    this.gl.deleteTexture(this.resources.codes);
    this.gl.deleteTexture(this.resources.lut);
    this.gl.deleteProgram(this.resources.program);
  }

  private uploadCodes({ codes, columns, rows }: Codes): void {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE0);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 2);
    if (this.size[0] === columns && this.size[1] === rows) {
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, columns, rows, gl.RED_INTEGER, gl.UNSIGNED_SHORT, codes);
    } else {
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.R16UI, columns, rows, 0, gl.RED_INTEGER, gl.UNSIGNED_SHORT, codes);
      this.size = [columns, rows];
    }
    this.hasCodes = true;
  }

  private uploadLut(lut: Uint32Array): void {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE1);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 4);
    const bytes = new Uint8Array(lut.buffer, lut.byteOffset, lut.byteLength);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA8, 256, 256, 0, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
    this.hasLut = true;
  }

  private readonly lost = (event: Event): void => {
    // Without this the browser never gives it back.
    event.preventDefault();
    this.isLost = true;
    this.redraw();
  };

  private readonly restored = (): void => {
    this.isLost = false;
    this.resources = makeResources(this.gl);
    this.size = [0, 0];
    this.hasCodes = false;
    this.hasLut = false;
    this.redraw();
  };
}
