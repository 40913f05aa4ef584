import assert from "node:assert/strict";
import { test } from "node:test";
import type { HitRate, ResultPlot } from "../../api/client";
import {
  choicesOf,
  chosenOf,
  chosenRaster,
  hitRatePoints,
  hitRateSummary,
  imageOfPoint,
  keptImage,
  placeOfPoint,
  plotSummary,
  pointsOf,
  readChoice,
} from "./history";
import { HIT_RATE } from "./seen";

const name = (text: string, unit = "") => ({ name: text, unit, meaning: "" });

const PLOT: ResultPlot = {
  detector: "jf",
  series: 3,
  results: [name("spots")],
  ...{ profile_axis: [], regions: [], cake_azimuth_deg: [] },
  result: "spots",
  bin_images: 2,
  first_image: [0, 2, 6],
  images: [2, 2, 1],
  without: [0, 2, 0],
  mean: [4, null, 7],
  lowest: [3, null, 7],
  highest: [5, null, 7],
  time_s: [0, null, 0.5],
};

test("what was chosen is read, and nonsense counts as not chosen", () => {
  const raster = { columns: null, rows: null, isSnake: null };
  const none = { result: null, axis: "image", raster, isHidden: false };
  for (const text of [
    null,
    "",
    "{",
    "7",
    "null",
    '{"axis": "other", "result": 3, "raster": {"columns": -2, "rows": 1.5}}',
  ]) {
    assert.deepEqual(readChoice(text), none, String(text));
  }
  const chosen = { result: "spots", axis: "raster", raster: { columns: 4, rows: 3, isSnake: true }, isHidden: true };
  assert.deepEqual(readChoice(JSON.stringify(chosen)), chosen);
});

test("the rate of hits can be chosen where there are hits", () => {
  assert.deepEqual(choicesOf([name("spots")]).length, 1);
  const names = choicesOf([name("is_hit"), name("spots")]).map((one) => one.name);
  assert.deepEqual(names, [HIT_RATE, "is_hit", "spots"]);
  assert.equal(chosenOf(names, null), "spots");
  assert.equal(chosenOf(names, HIT_RATE), HIT_RATE);
  assert.equal(chosenOf(["a", "b"], "spots"), "a");
  assert.equal(chosenOf([], "spots"), null);
});

test("points against number and time", () => {
  const points = pointsOf(PLOT, "image");
  assert.deepEqual(points.axis, [0, 2, 6]);
  assert.deepEqual(points.band, { lowest: [3, null, 7], highest: [5, null, 7] });
  assert.deepEqual(pointsOf(PLOT, "time").axis, [0, 0, 0.5]);
  assert.deepEqual(pointsOf({ ...PLOT, time_s: [null, 2, 1] }, "time").axis, [0, 2, 2]);
  assert.equal(pointsOf({ ...PLOT, bin_images: 1 }, "image").band, null);
});

test("a falling angle turns the points around, so that they rise", () => {
  const angles = { of: (image: number) => 90 - image };
  const points = pointsOf(PLOT, "angle", angles);
  assert.deepEqual(points.axis, [84, 88, 90]);
  assert.deepEqual(points.mean, [7, null, 4]);
  assert.deepEqual(points.without, [0, 2, 0]);
  assert.deepEqual(
    [0, 1, 2].map((point) => placeOfPoint(points, point)),
    [2, 1, 0],
  );
  const rising = pointsOf(PLOT, "angle", { of: (image) => (image === 2 ? null : image / 2) });
  assert.deepEqual([rising.axis, placeOfPoint(rising, 2)], [[0, 0, 3], 2]);
});

test("a raster is that of the images, but for what was given by hand", () => {
  const none = { columns: null, rows: null, isSnake: null };
  const measured = { columns: 7, rows: null, isSnake: true };
  assert.equal(chosenRaster(none, null), null);
  assert.deepEqual(chosenRaster(none, measured), measured);
  assert.deepEqual(chosenRaster({ columns: 3, rows: 2, isSnake: false }, measured), {
    columns: 3,
    rows: 2,
    isSnake: false,
  });
});

test("a line of words says the same as the plot", () => {
  assert.equal(
    plotSummary(PLOT, pointsOf(PLOT, "image"), name("spots")),
    "spots: newest 7, from 3 to 7; 5 images of the newest run, a point for each 2 (line: mean, band: lowest to highest); ▲ 2 without results: lost or not analysed",
  );
  const one = { ...PLOT, bin_images: 1, first_image: [9], images: [1], without: [0], mean: [2.5] };
  const text = plotSummary(one, pointsOf(one, "image"), name("resolution", "Å"));
  assert.equal(text, "resolution 2.5 Å; 1 image of the newest run");
  const lost = { ...one, without: [1], mean: [null] };
  assert.match(plotSummary(lost, pointsOf(lost, "image"), name("spots")), /^no image has a number for spots; 1 image/);
  const none = { ...PLOT, first_image: [], images: [], without: [], mean: [], lowest: [], highest: [], time_s: [] };
  assert.equal(plotSummary(none, pointsOf(none, "time"), name("spots")), "no image of the newest run yet");
});

test("the rate of hits over time, with a gap where nothing was analysed", () => {
  const rate: HitRate = { detector: "jf", series: 1, bin_s: 2, analysed: [10, 0, 4], hits: [1, 0, 4], indexed: [] };
  const points = hitRatePoints(rate);
  assert.deepEqual(
    [points.axis, points.mean],
    [
      [0, 2, 4],
      [10, null, 100],
    ],
  );
  const words = hitRateSummary(rate, points, name(HIT_RATE, "%"));
  assert.equal(words, "hit rate: newest 100 %, from 10 to 100 %; 5 of 14 analysed images, a point for each 2 s");
  const none = { ...rate, analysed: [], hits: [] };
  assert.match(hitRateSummary(none, hitRatePoints(none), name(HIT_RATE)), /^no image/);
});

test("a point leads to an image that is kept", () => {
  const ring = { first: 3, last: 6, run: 3 };
  assert.deepEqual(imageOfPoint(PLOT, 0, ring), { image: 0, isKept: false });
  assert.deepEqual(imageOfPoint(PLOT, 1, ring), { image: 3, isKept: true });
  assert.deepEqual(imageOfPoint(PLOT, 2, ring), { image: 6, isKept: true });
  assert.deepEqual(imageOfPoint(PLOT, 2, null), { image: 6, isKept: false });
  assert.equal(imageOfPoint(PLOT, 3, ring), null);
});

test("an image of a map is kept or not", () => {
  assert.deepEqual(keptImage(2, { first: 3, last: 6, run: 3 }), { image: 2, isKept: false });
  assert.deepEqual(keptImage(5, { first: 3, last: 6, run: 3 }), { image: 5, isKept: true });
  assert.deepEqual(keptImage(5, null), { image: 5, isKept: false });
});
