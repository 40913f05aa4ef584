// Decodes a binary message of docs/live.md into a frame. Whatever is wrong with it is found here, before it is drawn.

import {
  CODE_INVALID,
  CODE_MASKED,
  CODE_MISSING,
  CODE_SATURATED,
  type Coding,
  codeToValue,
  countToCode,
  floatBitsToCode,
  linearCoding,
  linearToCode,
  type Value,
} from "./code16";
import type { Geometry } from "./geometry";
import { unpackLz4 } from "./lz4";

/** Numbers and lists of numbers by name; null where a number is not known. */
export type Results = Record<string, number | null | (number | null)[]>;
export type Region = [column: number, row: number, columns: number, rows: number];

/** The header of a frame; the names are those of docs/live.md. */
export interface FrameHeader {
  sequence: number;
  detector: string;
  /** Null for images that are of no run of this service, as those of files. */
  run: number | null;
  /** The master of the file; null for the newest images. */
  file: string | null;
  image: number;
  /** The images that were put together, of which `image` is the last one. */
  stack: { by: "sum" | "maximum"; images: number; first: number } | null;
  status: string;
  /** What it is, if it is no image: a map of the calibration. */
  label?: string;
  /** Range of the numbers of a map. */
  range?: [low: number, high: number] | null;
  age_ms: number | null;
  skipped: number;
  channel: string;
  channels: string[];
  dtype: string;
  rows: number;
  columns: number;
  region: Region;
  bin: number;
  frame_rows: number;
  frame_columns: number;
  format: "code16" | "int32" | "float32";
  coding: Coding;
  packing: "none" | "lz4";
  bytes: number;
  levels: [low: number, high: number] | null;
  geometry: Geometry | null;
  results: Results | null;
  /** Why the results do not say which spots the image has; null if they do. */
  no_spots?: string | null;
}

export interface Frame {
  header: FrameHeader;
  /** What is drawn: one code for each dot, row after row. */
  codes: Uint16Array;
  /** The value of the dot at this place. */
  value(index: number): Value;
}

export class FrameError extends Error {}

const PIXELS_MAX = 16 * 1024 * 1024;
const FORMATS = { code16: 2, int32: 4, float32: 4 };

function headerBytes(message: ArrayBuffer): Uint8Array {
  if (message.byteLength < 8) throw new FrameError("the message is too short for a frame");
  const view = new DataView(message);
  if (view.getUint32(0, true) !== 0x3152464b) throw new FrameError("the message is not a frame");
  const length = view.getUint32(4, true);
  if (length > message.byteLength - 8) throw new FrameError("the header of the frame is cut off");
  return new Uint8Array(message, 8, length);
}

function parsed(message: ArrayBuffer): FrameHeader {
  const header: unknown = JSON.parse(new TextDecoder().decode(headerBytes(message)));
  if (typeof header !== "object" || header === null) throw new FrameError("the header of the frame is not an object");
  return header as FrameHeader;
}

/** The number of a frame that will not be drawn; null if it cannot be read. */
export function sequenceOf(message: ArrayBuffer): number | null {
  try {
    const { sequence } = parsed(message);
    return Number.isSafeInteger(sequence) ? sequence : null;
  } catch {
    return null;
  }
}

/** The header of a message that is not decoded yet; throws what is wrong with it. */
export function readHeader(message: ArrayBuffer): FrameHeader {
  const header = parsed(message);
  check(header);
  return header;
}

const isWhole = (number: unknown, least: number): number is number =>
  Number.isSafeInteger(number) && Number(number) >= least;

function check(header: FrameHeader): void {
  const { rows, columns, region, bin, frame_rows, frame_columns } = header;
  const isOfRun = header.run === null || isWhole(header.run, 0);
  const isNumbered = isWhole(header.sequence, 0) && isWhole(header.image, 0) && isOfRun;
  const hasSize = isWhole(rows, 1) && isWhole(columns, 1) && isWhole(bin, 1);
  const hasRegion =
    Array.isArray(region) && region.length === 4 && region.every((n, place) => isWhole(n, place < 2 ? 0 : 1));
  if (!isNumbered || !hasSize || !hasRegion) throw new FrameError("the header of the frame has wrong numbers");
  if (region[0] + region[2] > columns || region[1] + region[3] > rows) {
    throw new FrameError("the region of the frame is not in the image");
  }
  if (frame_columns !== Math.ceil(region[2] / bin) || frame_rows !== Math.ceil(region[3] / bin)) {
    throw new FrameError("the size of the frame is not that of its region");
  }
  if (!(header.format in FORMATS) || !["count", "float"].includes(header.coding)) {
    throw new FrameError("the pixels of the frame have a format that this page does not know; load the page again");
  }
  if (!["none", "lz4"].includes(header.packing)) {
    throw new FrameError("the frame is packed in a way that this page does not know; load the page again");
  }
  const pixels = frame_rows * frame_columns;
  if (pixels > PIXELS_MAX || header.bytes !== pixels * FORMATS[header.format]) {
    throw new FrameError("the frame does not have the number of bytes that its size needs");
  }
}

function codeOfInt32(value: number): number {
  if (value === 2147483647) return CODE_SATURATED;
  if (value > -2147483646) return countToCode(value);
  if (value === -2147483646) return CODE_MISSING;
  return value === -2147483647 ? CODE_INVALID : CODE_MASKED;
}

const FLOAT_LOWEST = -3.4028234663852886e38;

function codeOfFloat32(value: number, bits: number): number {
  if (Number.isFinite(value)) return value === FLOAT_LOWEST ? CODE_INVALID : floatBitsToCode(bits);
  if (Number.isNaN(value)) return CODE_MASKED;
  return value > 0 ? CODE_SATURATED : CODE_MISSING;
}

/** Memory that frames of one size share. */
class Memory {
  private buffer = new ArrayBuffer(0);
  private codes = new Uint16Array(0);

  unpacked(bytes: number): Uint8Array {
    if (this.buffer.byteLength !== bytes) this.buffer = new ArrayBuffer(bytes);
    return new Uint8Array(this.buffer);
  }

  ofCodes(pixels: number): Uint16Array {
    if (this.codes.length !== pixels) this.codes = new Uint16Array(pixels);
    return this.codes;
  }
}

function pixelBytes(message: ArrayBuffer, header: FrameHeader, memory: Memory): Uint8Array {
  const packed = new Uint8Array(message, 8 + headerBytes(message).length);
  if (header.packing === "lz4") {
    const bytes = memory.unpacked(header.bytes);
    unpackLz4(packed, bytes);
    return bytes;
  }
  if (packed.length !== header.bytes) throw new FrameError("the pixels of the frame are cut off");
  if (packed.byteOffset % 4 === 0) return packed;
  const bytes = memory.unpacked(header.bytes);
  bytes.set(packed);
  return bytes;
}

function special(code: number, value: number): Value {
  return code < 16 || code === CODE_SATURATED ? codeToValue(code, "count") : { kind: "number", value };
}

/** Decodes frames; what it gave for the last but one is overwritten. */
export class FrameDecoder {
  // Two of them, so that the frame on the screen stays whole if the next one turns out to be wrong.
  private memories: [Memory, Memory] = [new Memory(), new Memory()];

  decode(message: ArrayBuffer): Frame {
    const header = readHeader(message);
    const [memory, other] = this.memories;
    const bytes = pixelBytes(message, header, memory);
    const frame = this.frame(header, bytes, memory);
    this.memories = [other, memory];
    return frame;
  }

  // The numbers lie as the machine has them: all machines with browsers are little-endian.
  private frame(header: FrameHeader, bytes: Uint8Array, memory: Memory): Frame {
    const pixels = header.frame_rows * header.frame_columns;
    const { buffer, byteOffset } = bytes;
    if (header.format === "code16") {
      const codes = new Uint16Array(buffer, byteOffset, pixels);
      return { header, codes, value: (index) => codeToValue(codes[index] ?? CODE_MISSING, header.coding) };
    }
    const codes = memory.ofCodes(pixels);
    if (header.format === "int32") {
      const numbers = new Int32Array(buffer, byteOffset, pixels);
      for (let n = 0; n < pixels; n++) codes[n] = codeOfInt32(numbers[n] as number);
      return { header, codes, value: (index) => special(codes[index] ?? 0, numbers[index] ?? Number.NaN) };
    }
    const numbers = new Float32Array(buffer, byteOffset, pixels);
    const bits = new Uint32Array(buffer, byteOffset, pixels);
    if (header.range) return this.map(header, header.range, numbers, codes);
    for (let n = 0; n < pixels; n++) codes[n] = codeOfFloat32(numbers[n] as number, bits[n] as number);
    return { header, codes, value: (index) => special(codes[index] ?? 0, numbers[index] ?? Number.NaN) };
  }

  /** Numbers that differ little from each other have codes in equal steps: those of floats are too coarse for them. */
  private map(header: FrameHeader, range: [number, number], numbers: Float32Array, codes: Uint16Array): Frame {
    for (let n = 0; n < numbers.length; n++) {
      const value = numbers[n] as number;
      codes[n] = Number.isFinite(value) ? linearToCode(value, range) : CODE_MASKED;
    }
    const coded = { ...header, coding: linearCoding(range) };
    return { header: coded, codes, value: (index) => special(codes[index] ?? 0, numbers[index] ?? Number.NaN) };
  }
}

/** Where in the frame the dot with this pixel of the image is; null if the frame does not have it. */
export function indexOfPixel(header: FrameHeader, column: number, row: number): number | null {
  const [left, top, columns, rows] = header.region;
  if (!(column >= left && row >= top && column < left + columns && row < top + rows)) return null;
  return Math.floor((row - top) / header.bin) * header.frame_columns + Math.floor((column - left) / header.bin);
}
