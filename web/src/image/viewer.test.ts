import assert from "node:assert";
import { test } from "node:test";
import { signal } from "@preact/signals";
import type { Connection, FrameRequest, Ring } from "../live/types";
import { FrameError, type FrameHeader } from "./frame";
import { readingAt } from "./reading";
import { Viewer } from "./viewer";
import { watchWith } from "./watch";

function connection(): Connection & { asked: (FrameRequest | null)[] } {
  const asked: (FrameRequest | null)[] = [];
  return {
    asked,
    contact: signal({ kind: "connecting" as const }),
    detectors: signal(null),
    detector: signal<string | null>("jf"),
    statistics: signal(null),
    ring: signal<Ring | null>({ first: 10, last: 20, run: 1 }),
    events: signal([]),
    frame: signal(null),
    noImage: signal(null),
    useToken() {},
    forgetToken() {},
    showDetector() {},
    watchFrames: (request) => asked.push(request),
    acknowledge() {},
  };
}

function message(changes: Partial<FrameHeader>, codes: number[]): ArrayBuffer {
  const header = {
    ...{ sequence: 1, detector: "jf", run: 1, image: 15, rows: 2, columns: 4, region: [0, 0, 4, 2], bin: 1 },
    ...{ frame_rows: 2, frame_columns: 4, format: "code16", coding: "count", packing: "none", bytes: 16 },
    ...{ levels: [0, 40], geometry: null, results: {}, ...changes },
  };
  let text = JSON.stringify(header);
  while ((8 + text.length) % 8) text += " ";
  const bytes = new Uint8Array(8 + text.length + 2 * codes.length);
  bytes.set([75, 70, 82, 49]);
  new DataView(bytes.buffer).setUint32(4, text.length, true);
  bytes.set(new TextEncoder().encode(text), 8);
  bytes.set(new Uint8Array(Uint16Array.from(codes).buffer), 8 + text.length);
  return bytes.buffer;
}

const CODES = [4112, 4113, 4114, 4115, 0, 1, 2, 65535];

function shown(changes: Partial<FrameHeader> = {}, codes = CODES): Viewer {
  const viewer = new Viewer(connection());
  viewer.take(message(changes, codes));
  assert.equal(viewer.decodeWaiting(), changes.sequence ?? 1);
  return viewer;
}

test("contrast is set by the first frame and never by later ones", () => {
  const viewer = shown({ levels: null });
  assert.equal(viewer.contrast.value, null);
  viewer.take(message({ levels: [1, 9] }, CODES));
  viewer.decodeWaiting();
  assert.deepEqual(viewer.contrast.value, { low: 1, high: 9 });
  viewer.take(message({ levels: [5, 500] }, CODES));
  viewer.decodeWaiting();
  assert.deepEqual(viewer.contrast.value, { low: 1, high: 9 });
  viewer.autoContrast();
  assert.deepEqual(viewer.contrast.value, { low: 5, high: 500 });
});

test("a wrong frame is told, acknowledged and not shown", () => {
  const viewer = shown();
  viewer.take(message({ sequence: 2, bytes: 17 }, CODES));
  assert.equal(viewer.decodeWaiting(), 2);
  assert.ok(viewer.problem.value);
  assert.equal(viewer.header.value?.sequence, 1);
  viewer.take(message({ sequence: 3 }, CODES));
  viewer.decodeWaiting();
  assert.equal(viewer.problem.value, null);
  assert.ok(new FrameError("") instanceof Error);
});

test("a late frame of another detector is not shown", () => {
  const viewer = shown({ detector: "eiger" });
  assert.equal(viewer.header.value, null);
});

test("freeze, step, and go only where images are", () => {
  const viewer = shown();
  viewer.toggleFreeze();
  assert.equal(viewer.source.value, 15);
  viewer.step(-1);
  assert.equal(viewer.source.value, 14);
  viewer.goTo(99);
  assert.equal(viewer.source.value, 20);
  viewer.goTo(0);
  assert.equal(viewer.source.value, 10);
  viewer.goTo(Number.NaN);
  assert.equal(viewer.source.value, 10);
  viewer.toggleFreeze();
  assert.equal(viewer.source.value, "latest");
});

test("what is under the pointer", () => {
  const viewer = shown();
  const read = (x: number, y: number) => viewer.frame && readingAt(viewer.frame, { x, y });
  assert.equal(read(3.9, 0.1)?.value, "3");
  assert.deepEqual(
    [0, 1, 2, 3].map((x) => read(x + 0.5, 1.5)?.value),
    ["missing", "masked", "not valid", "saturated"],
  );
  assert.equal(read(4.1, 0), null);
  assert.equal(read(-0.1, 0), null);
  const binned = shown({ rows: 4, columns: 8, region: [0, 0, 8, 4], bin: 2 });
  assert.equal(binned.frame && readingAt(binned.frame, { x: 3, y: 1 })?.value, "largest of 2 × 2: 1");
  const part = shown({ rows: 9, columns: 9, region: [2, 2, 4, 2] });
  assert.equal(part.frame && readingAt(part.frame, { x: 1, y: 1 })?.value, "–");
  assert.equal(part.frame && readingAt(part.frame, { x: 2, y: 2 })?.value, "0");
});

test("another size of the image shows all of it again", () => {
  const viewer = shown();
  viewer.view.value = { x: 1, y: 1, scale: 20 };
  viewer.take(message({ rows: 1, columns: 8, region: [0, 0, 8, 1], frame_rows: 1, frame_columns: 8 }, CODES));
  viewer.decodeWaiting();
  assert.equal(viewer.view.value, null);
});

test("the service is asked once for each image, and for parts when the view has settled", async () => {
  const viewer = shown();
  const { asked } = viewer.connection as ReturnType<typeof connection>;
  const stop = watchWith(viewer);
  assert.equal(asked.length, 0);
  viewer.canvas.value = { width: 8, height: 8 };
  await Promise.resolve();
  assert.deepEqual(asked, [{ image: "latest", hz_max: 10, region: null, pixels_max: 4096 }]);
  for (let n = 0; n < 5; n++) viewer.view.value = { x: 2, y: 0, scale: 10 + n };
  await Promise.resolve();
  assert.equal(asked.length, 1);
  viewer.source.value = 12;
  await Promise.resolve();
  assert.equal(asked.length, 2);
  assert.deepEqual(asked[1]?.region, [1, 0, 2, 1]);
  await new Promise((done) => setTimeout(done, 200));
  assert.equal(asked.length, 2);
  stop();
  assert.equal(asked[2], null);
});
