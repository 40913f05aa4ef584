import assert from "node:assert";
import { test } from "node:test";
import { CODES, type connection, give, message, shown } from "./fixtures";
import { FrameError } from "./frame";
import { readingAt } from "./reading";
import { watchWith } from "./watch";

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

test("frames of a file are shown while it is open, and no others", () => {
  const viewer = shown();
  viewer.openFile("/data/a_master.h5", 3);
  assert.deepEqual(viewer.request(), {
    image: 3,
    hz_max: 10,
    file: "/data/a_master.h5",
    region: null,
    pixels_max: 4096,
  });
  give(viewer, { image: 16 });
  assert.equal(viewer.header.value?.image, 15);
  give(viewer, { image: 3, run: null, file: "/data/a_master.h5" });
  assert.deepEqual([viewer.header.value?.image, viewer.header.value?.run], [3, null]);
  viewer.goTo(99);
  assert.equal(viewer.source.value, 99);
  viewer.fileImages.value = 7;
  viewer.goTo(99);
  assert.equal(viewer.source.value, 6);
  viewer.closeFile();
  assert.deepEqual([viewer.source.value, viewer.fileImages.value], ["latest", null]);
});

test("another stack is asked for, and sets the contrast once", () => {
  const viewer = shown();
  viewer.setContrast({ low: 1, high: 2 });
  viewer.chooseStack({ by: "sum", images: 5 });
  assert.deepEqual(viewer.request().stack, { by: "sum", images: 5 });
  // One that was on its way.
  give(viewer, { image: 16, levels: [0, 9] });
  assert.deepEqual(viewer.contrast.value, { low: 1, high: 2 });
  const stack = { by: "sum" as const, images: 5, first: 13 };
  give(viewer, { image: 17, levels: [0, 90], stack });
  assert.deepEqual(viewer.contrast.value, { low: 0, high: 90 });
  give(viewer, { image: 18, levels: [0, 95], stack: { ...stack, images: 4 } });
  assert.deepEqual(viewer.contrast.value, { low: 0, high: 90 });
  viewer.chooseStack({ by: "maximum", images: 1 });
  assert.equal(viewer.request().stack, undefined);
});

test("a ring goes through the pointer while that is wanted", () => {
  const geometry = {
    origin_mm: [0.2, 0.1, 100] as [number, number, number],
    fast_mm: [-0.1, 0, 0] as [number, number, number],
    slow_mm: [0, -0.1, 0] as [number, number, number],
    wavelength_angstrom: 1,
  };
  const viewer = shown({ geometry });
  viewer.canvas.value = { width: 40, height: 20 };
  viewer.pointTo({ x: 35, y: 5 });
  assert.equal(viewer.ringAngstrom.value, null);
  viewer.toggleRing();
  const first = viewer.ringAngstrom.value ?? 0;
  assert.ok(Math.abs(first - 1 / (2 * Math.sin(Math.atan(Math.hypot(0.15, 0.05) / 100) / 2))) < 1e-6 * first);
  viewer.pointTo({ x: 39, y: 5 });
  assert.ok((viewer.ringAngstrom.value ?? 0) < first);
  viewer.pointTo(null);
  assert.notEqual(viewer.ringAngstrom.value, null);
  viewer.toggleRing();
  assert.equal(viewer.ringAngstrom.value, null);
});
