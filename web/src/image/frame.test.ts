import assert from "node:assert";
import { test } from "node:test";
import { FrameDecoder, FrameError, type FrameHeader, indexOfPixel, sequenceOf } from "./frame";
import { Lz4Error } from "./lz4";

const HEADER: FrameHeader = {
  sequence: 7,
  detector: "jf",
  run: 3,
  file: null,
  image: 17,
  stack: null,
  status: "complete",
  age_ms: 4,
  skipped: 0,
  channel: "image",
  channels: ["image"],
  dtype: "<i4",
  rows: 4,
  columns: 5,
  region: [0, 0, 3, 1],
  bin: 1,
  frame_rows: 1,
  frame_columns: 3,
  format: "code16",
  coding: "count",
  packing: "none",
  bytes: 6,
  levels: [0, 9],
  geometry: null,
  results: {},
};

function message(changes: Partial<FrameHeader>, pixels: ArrayBufferView): ArrayBuffer {
  let text = JSON.stringify({ ...HEADER, ...changes });
  while ((8 + text.length) % 8) text += " ";
  const header = new TextEncoder().encode(text);
  const bytes = new Uint8Array(8 + header.length + pixels.byteLength);
  bytes.set([75, 70, 82, 49]);
  new DataView(bytes.buffer).setUint32(4, header.length, true);
  bytes.set(header, 8);
  bytes.set(new Uint8Array(pixels.buffer, pixels.byteOffset, pixels.byteLength), 8 + header.length);
  return bytes.buffer;
}

const decode = (changes: Partial<FrameHeader>, pixels: ArrayBufferView) =>
  new FrameDecoder().decode(message(changes, pixels));

test("codes of a frame", () => {
  const frame = decode({}, Uint16Array.of(4112, 1, 65535));
  assert.deepEqual([...frame.codes], [4112, 1, 65535]);
  assert.deepEqual(frame.value(0), { kind: "number", value: 0 });
  assert.deepEqual(frame.value(1), { kind: "masked" });
  assert.deepEqual(frame.value(2), { kind: "saturated" });
  assert.equal(frame.header.image, 17);
});

test("packed pixels", () => {
  const frame = decode({ packing: "lz4" }, Uint8Array.of(0x60, 16, 16, 1, 0, 255, 255));
  assert.deepEqual([...frame.codes], [4112, 1, 65535]);
  assert.throws(() => decode({ packing: "lz4" }, Uint8Array.of(0x60, 16, 16)), Lz4Error);
});

test("whole numbers of 32 bits are exact, with their special values", () => {
  const size = { region: [0, 0, 5, 1] as [number, number, number, number], frame_columns: 5, format: "int32" as const };
  const pixels = Int32Array.of(1234567, -2147483648, -2147483646, -2147483647, 2147483647);
  const frame = decode({ ...size, bytes: 20 }, pixels);
  const kinds = [0, 1, 2, 3, 4].map((n) => frame.value(n).kind);
  assert.deepEqual(kinds, ["number", "masked", "missing", "invalid", "saturated"]);
  assert.deepEqual(frame.value(0), { kind: "number", value: 1234567 });
  assert.deepEqual([...frame.codes.slice(1)], [1, 0, 2, 65535]);
});

test("floats are exact, with their special values", () => {
  const size = {
    region: [0, 0, 5, 1] as [number, number, number, number],
    frame_columns: 5,
    format: "float32" as const,
  };
  const specials = [Number.NaN, Number.NEGATIVE_INFINITY, -3.4028234663852886e38, Number.POSITIVE_INFINITY];
  const frame = decode({ ...size, coding: "float", bytes: 20 }, Float32Array.of(0.25, ...specials));
  const kinds = [0, 1, 2, 3, 4].map((n) => frame.value(n).kind);
  assert.deepEqual(kinds, ["number", "masked", "missing", "invalid", "saturated"]);
  assert.deepEqual(frame.value(0), { kind: "number", value: 0.25 });
});

test("memory is used again, but not that of the frame on the screen", () => {
  const decoder = new FrameDecoder();
  const packed = (code: number) => message({ packing: "lz4" }, Uint8Array.of(0x60, code, 16, code, 16, code, 16));
  const [first, second] = [decoder.decode(packed(1)), decoder.decode(packed(2))];
  assert.deepEqual([...first.codes], [4097, 4097, 4097]);
  assert.throws(() => decoder.decode(message({ packing: "lz4" }, Uint8Array.of(0x60, 1, 2))));
  assert.deepEqual([...second.codes], [4098, 4098, 4098]);
  assert.equal(decoder.decode(packed(3)).codes.buffer, first.codes.buffer);
});

test("wrong frames are refused", () => {
  const pixels = Uint16Array.of(1, 2, 3);
  const wrong: Partial<FrameHeader>[] = [
    { bytes: 8 },
    { frame_columns: 4 },
    { bin: 0 },
    { region: [3, 0, 3, 1] },
    { region: [0, 0, 3.5, 1] },
    { rows: -1 },
    { sequence: 0.5 },
    { format: "code8" as "code16" },
    { packing: "zip" as "lz4" },
    { columns: 1e9, rows: 1e9, region: [0, 0, 1e9, 1e9], frame_columns: 1e9, frame_rows: 1e9, bytes: 2e18 },
  ];
  for (const changes of wrong) assert.throws(() => decode(changes, pixels), FrameError, JSON.stringify(changes));
  assert.throws(() => new FrameDecoder().decode(new ArrayBuffer(3)), FrameError);
  assert.throws(() => new FrameDecoder().decode(new ArrayBuffer(64)), FrameError);
  const cut = message({}, pixels);
  assert.throws(() => new FrameDecoder().decode(cut.slice(0, 40)), FrameError);
  assert.throws(() => new FrameDecoder().decode(cut.slice(0, cut.byteLength - 1)), FrameError);
});

test("the number of a frame is read without its pixels", () => {
  assert.equal(sequenceOf(message({}, Uint16Array.of(1, 2, 3))), 7);
  assert.equal(sequenceOf(new ArrayBuffer(9)), null);
});

test("the dot of a pixel", () => {
  const header = { ...HEADER, region: [10, 20, 7, 5] as [number, number, number, number], bin: 2, frame_columns: 4 };
  assert.equal(indexOfPixel(header, 10, 20), 0);
  assert.equal(indexOfPixel(header, 16, 24), 2 * 4 + 3);
  assert.equal(indexOfPixel(header, 17, 24), null);
  assert.equal(indexOfPixel(header, 9, 20), null);
  assert.equal(indexOfPixel(header, Number.NaN, 20), null);
});
