import assert from "node:assert/strict";
import { test } from "node:test";
import { give, shown } from "./fixtures";
import { curvesOf, curvesText, nearestRow } from "./rowCurves";
import { isStrip, toImage, toScreen } from "./view";

/** Two rows of 40 pixels: the column as count, and in the second row 1000 at 7 and each kind without a count. */
function strip() {
  const codes = [0, 1].flatMap(() => Array.from({ length: 40 }, (_, n) => 4112 + n));
  codes[47] = 5112;
  codes.splice(50, 4, 0, 1, 2, 65535);
  const size = { rows: 2, columns: 40, frame_rows: 2, frame_columns: 40, bytes: 160 };
  return shown({ ...size, region: [0, 0, 40, 2] }, codes);
}

test("a curve for each row, with gaps where there is no number", () => {
  const { frame } = strip();
  assert.ok(frame);
  const curves = curvesOf(frame);
  assert.deepEqual(curves.columns, [...Array(40).keys()]);
  assert.deepEqual(curves.rows[0], [...Array(40).keys()]);
  assert.deepEqual(curves.rows[1]?.slice(6, 15), [6, 1000, 8, 9, null, null, null, null, 14]);
  assert.deepEqual(curves.without.slice(9, 15), [0, 1, 1, 1, 1, 0]);
  assert.equal(curvesText(curves), "Counts against pixel: highest 1000 at x 7 y 1");
  assert.equal(
    curvesText({ columns: [3], rows: [[null]], without: [1] }),
    "Counts against pixel: no pixel has a number",
  );
});

test("the pointer is on the row of the nearest curve", () => {
  assert.equal(nearestRow([10, 50, 90], 60), 1);
  assert.equal(nearestRow([null, 50, null], 500), 1);
  assert.equal(nearestRow([null, null], 5), 0);
  assert.equal(nearestRow([], 5), 0);
});

test("of strips all rows are on the canvas, and each pixel is asked for, whatever the view", () => {
  const viewer = strip();
  viewer.resize({ width: 801, height: 60 });
  const fitted = viewer.actualView();
  assert.deepEqual(fitted && [fitted.scale, toScreen(fitted, { x: 40, y: 2 })], [20, { x: 800, y: 60 }]);
  viewer.changeView((view) => ({ ...view, x: 10.5, y: 99, scale: 40 }));
  const view = viewer.actualView();
  assert.deepEqual(view && toImage(view, { x: 400, y: 45 }), { x: 20.5, y: 1.5 });
  assert.deepEqual(viewer.request().region, null);
  // An image of many rows is one as before.
  give(viewer);
  assert.deepEqual(viewer.actualView()?.rowScale, undefined);
});

test("an image of a few rows is a strip only if it is long", () => {
  const sizes = [
    [1280, 1],
    [1280, 3],
    [128, 8],
    [1280, 9],
    [40, 8],
    [16, 1],
    [15, 1],
  ] as const;
  assert.deepEqual(
    sizes.map(([width, height]) => isStrip({ width, height })),
    [true, true, true, false, false, true, false],
  );
});
