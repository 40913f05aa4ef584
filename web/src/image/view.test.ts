import assert from "node:assert";
import { test } from "node:test";
import {
  boxed,
  centred,
  centreOf,
  fitted,
  kept,
  panned,
  SCALE_MAX,
  toImage,
  toScreen,
  visibleRegion,
  wantedFrame,
  zoomed,
} from "./view";

const IMAGE = { width: 1000, height: 500 };
const CANVAS = { width: 500, height: 400 };

function near(a: { x: number; y: number }, b: { x: number; y: number }): void {
  assert.ok(Math.hypot(a.x - b.x, a.y - b.y) < 1e-9, `${JSON.stringify(a)} ${JSON.stringify(b)}`);
}

test("fit shows all of the image in the middle", () => {
  const view = fitted(IMAGE, CANVAS);
  assert.equal(view.scale, 0.5);
  near(toScreen(view, { x: 0, y: 0 }), { x: 0, y: 75 });
  near(centreOf(view, CANVAS), { x: 500, y: 250 });
});

test("zoom keeps what is under the cursor", () => {
  const view = fitted(IMAGE, CANVAS);
  const at = { x: 123, y: 234 };
  for (const factor of [1.25, 0.5, 1e9]) near(toImage(zoomed(view, at, factor), at), toImage(view, at));
  assert.equal(zoomed(view, at, 1e9).scale, SCALE_MAX);
});

test("pan follows the cursor", () => {
  const view = fitted(IMAGE, CANVAS);
  const before = toImage(view, { x: 10, y: 10 });
  near(toScreen(panned(view, 30, -20), before), { x: 40, y: -10 });
});

test("a box fills the canvas, a line changes nothing", () => {
  const view = fitted(IMAGE, CANVAS);
  const box = boxed(view, CANVAS, { x: 100, y: 100 }, { x: 200, y: 180 });
  assert.equal(box.scale, 2.5);
  near(toScreen(box, toImage(view, { x: 100, y: 100 })), { x: 0, y: 0 });
  assert.equal(boxed(view, CANVAS, { x: 100, y: 100 }, { x: 200, y: 101 }), view);
});

test("a place in the middle", () => {
  const view = centred(fitted(IMAGE, CANVAS), CANVAS, { x: 7, y: 9 }, 1);
  near(centreOf(view, CANVAS), { x: 7, y: 9 });
  assert.equal(view.scale, 1);
});

test("the image cannot be lost", () => {
  const far = kept({ x: 1e6, y: -1e6, scale: 1 }, IMAGE, CANVAS);
  const corner = toScreen(far, { x: IMAGE.width, y: 0 });
  near(corner, { x: 40, y: 360 });
  assert.deepEqual(kept(fitted(IMAGE, CANVAS), IMAGE, CANVAS), fitted(IMAGE, CANVAS));
});

test("the visible part with margins", () => {
  const view = { x: 100, y: 100, scale: 5 };
  assert.deepEqual(visibleRegion(view, CANVAS, IMAGE, 0), [100, 100, 100, 80]);
  assert.deepEqual(visibleRegion(view, CANVAS, IMAGE, 0.1), [90, 92, 120, 96]);
  assert.deepEqual(visibleRegion({ x: -20, y: -10, scale: 5 }, CANVAS, IMAGE, 0.25), [0, 0, 105, 90]);
  assert.equal(visibleRegion({ x: 5000, y: 0, scale: 5 }, CANVAS, IMAGE, 0.1), null);
});

test("zoomed out, the frame has at most one dot for each dot of the screen", () => {
  const image = { width: 2068, height: 2164 };
  for (const scale of [0.11, 0.25, 0.37, 0.5, 0.9]) {
    for (const ratio of [1, 1.5, 2]) {
      const { region, pixels_max } = wantedFrame({ x: 0, y: 0, scale }, { width: 3000, height: 3000 }, image, ratio);
      assert.equal(region, null);
      let bin = 1;
      while (Math.ceil(image.width / bin) * Math.ceil(image.height / bin) > pixels_max) bin++;
      const needed = 1 / (scale * ratio);
      const most = Math.sqrt((image.width * image.height) / 4194304);
      assert.ok(bin >= needed - 1e-6, "a dot is at least as large as one of the screen");
      assert.ok(bin < Math.max(needed, most, 1) + 1, "and not larger than it must be");
    }
  }
});

test("zoomed in, the frame is exact", () => {
  const { region, pixels_max } = wantedFrame({ x: 100, y: 100, scale: 5 }, CANVAS, IMAGE, 1);
  assert.deepEqual(region, [90, 92, 120, 96]);
  assert.ok(pixels_max >= 120 * 96);
});
