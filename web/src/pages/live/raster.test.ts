import assert from "node:assert/strict";
import { test } from "node:test";
import type { HitRate, ResultPlot } from "../../api/client";
import { anglesOf, hasAngles } from "./angles";
import { iceInBins, namesOfRegions, profileAxis } from "./lists";
import {
  cellOfImage,
  cellsOfHits,
  cellsOfResults,
  imageOfCell,
  measuredRaster,
  pointsOfCells,
  rangeOf,
} from "./raster";
import { finishedFile } from "./usePick";

const plot = (fields: Partial<ResultPlot>) =>
  ({ bin_images: 1, first_image: [], images: [], mean: [], ...fields }) as ResultPlot;

test("a cell and its image are the same way round, in a snake too", () => {
  for (const isSnake of [false, true]) {
    const raster = { columns: 5, rows: null, isSnake };
    for (let image = 0; image < 20; image++) {
      const { row, column } = cellOfImage(raster, image);
      assert.equal(imageOfCell(raster, row, column), image);
    }
  }
  assert.deepEqual(cellOfImage({ columns: 5, rows: null, isSnake: true }, 5), { row: 1, column: 4 });
});

test("results lie at their places, with as many rows as there are images", () => {
  const numbers = plot({ first_image: [0, 1, 2, 3], images: [1, 1, 1, 1], mean: [10, 11, null, 13] });
  const cells = cellsOfResults(numbers, { columns: 3, rows: null, isSnake: true });
  assert.deepEqual([cells?.columns, cells?.rows, cells?.imagesOfValue], [3, 2, 1]);
  assert.deepEqual([...(cells?.values ?? [])], [10, 11, Number.NaN, Number.NaN, Number.NaN, 13]);
  assert.deepEqual(rangeOf(cells?.values ?? new Float64Array()), [10, 13]);
  assert.equal(rangeOf(new Float64Array([Number.NaN])), null);
});

test("images of one bin share its number", () => {
  const binned = plot({ bin_images: 2, first_image: [0, 2], images: [2, 1], mean: [4, 6] });
  const cells = cellsOfResults(binned, { columns: 2, rows: 3, isSnake: false });
  assert.equal(cells?.imagesOfValue, 2);
  assert.deepEqual([...(cells?.values ?? [])], [4, 4, 6, Number.NaN, Number.NaN, Number.NaN]);
});

test("rasters that are too large are cut off or refused", () => {
  const long = plot({ bin_images: 4096, first_image: [0, 4_190_208], images: [4096, 4096], mean: [1, 2] });
  const cells = cellsOfResults(long, { columns: 1000, rows: null, isSnake: false });
  assert.deepEqual([cells?.rows, cells?.note], [1000, "only the first 1000 of 4195 rows"]);
  assert.equal(cellsOfResults(long, { columns: 5000, rows: null, isSnake: false }), null);
});

test("hits have their places from the service", () => {
  const raster = {
    row: [0, 1, 1],
    column: [1, 0, 1],
    analysed: [4, 0, 5],
    hits: [1, 0, 5],
    indexed: [],
    not_counted: 3,
  };
  const rate = { raster } as unknown as HitRate;
  const cells = cellsOfHits(rate, { columns: 2, rows: null, isSnake: true });
  assert.deepEqual([...(cells?.values ?? [])], [Number.NaN, 25, Number.NaN, 100]);
  assert.equal(cells?.note, "3 images lie beyond the raster that is counted");
  assert.equal(cellsOfHits({} as HitRate, { columns: 2, rows: null, isSnake: true }), null);
});

test("the images say the raster, or do not", () => {
  const of = (columns: number[], bin = 1) => {
    const first = Array.from({ length: Math.ceil(columns.length / bin) }, (_, n) => bin * n);
    const parts = first.map((image) => columns.slice(image, image + bin));
    return measuredRaster(
      plot({
        bin_images: bin,
        first_image: first,
        images: parts.map((part) => part.length),
        lowest: parts.map((part) => Math.min(...part)),
        highest: parts.map((part) => Math.max(...part)),
      }),
    );
  };
  const row = [0, 1, 2, 3, 4, 5];
  const back = [...row].reverse();
  assert.equal(measuredRaster(null), null);
  assert.equal(of([]), null);
  assert.deepEqual(of([0, 1]), { columns: 2, rows: null, isSnake: false });
  for (const bin of [1, 2, 3, 6]) {
    assert.deepEqual(of([...row, ...row], bin), { columns: 6, rows: null, isSnake: false }, `${bin}`);
    // Where a bin is a whole row, the direction changes nothing.
    assert.deepEqual(of([...row, ...back, ...row], bin), { columns: 6, rows: null, isSnake: bin < 6 }, `${bin} back`);
  }
  assert.deepEqual(of([0, 0, 0]), { columns: 1, rows: null, isSnake: false });
});

test("places are in the order of their images for the table", () => {
  const cells = {
    columns: 3,
    rows: 2,
    values: Float64Array.of(1, 2, 3, 4, Number.NaN, 6),
    imagesOfValue: 1,
    note: null,
  };
  const of = (isSnake: boolean) => pointsOfCells(cells, { columns: 3, rows: null, isSnake });
  assert.deepEqual(of(true), { images: [0, 1, 2, 3, 4, 5], values: [1, 2, 3, 6, null, 4] });
  assert.deepEqual(of(false).values, [1, 2, 3, 4, null, 6]);
});

test("angles are those of the images", () => {
  const angles = anglesOf(plot({ first_image: [0, 8], mean: [7, null] }));
  assert.deepEqual([angles?.of(0), angles?.of(8), angles?.of(1)], [7, null, null]);
  assert.equal(anglesOf(null), null);
  assert.ok(hasAngles([{ name: "angle_deg", unit: "", meaning: "" }]));
  assert.ok(!hasAngles([{ name: "spots", unit: "", meaning: "" }]));
});

test("lists have their axis and names if these fit", () => {
  const facts = { profile_axis: [1, 2, 3], profile_unit: "1/angstrom", regions: ["beam", "sky"] };
  assert.deepEqual(profileAxis(facts, 3), { axis: [1, 2, 3], name: "q, 1/Å" });
  assert.deepEqual(profileAxis(facts, 2), { axis: [0, 1], name: "bin" });
  assert.deepEqual(profileAxis(null, 1), { axis: [0], name: "bin" });
  assert.deepEqual(namesOfRegions(facts, 2), ["beam", "sky"]);
  assert.deepEqual(namesOfRegions(facts, 3), ["1", "2", "3"]);
});

test("rings of ice lie in their bins, where that can be told", () => {
  const axis = Array.from({ length: 41 }, (_, n) => n / 10);
  const inBins = (unit: string, wavelength: number | null) =>
    iceInBins({ profile_axis: axis, profile_unit: unit }, 41, wavelength)?.flatMap((count, n) =>
      count ? [axis[n]] : [],
    );
  assert.deepEqual(inBins("1/angstrom", null), [1.6, 1.7, 1.8, 2.4, 2.8, 3, 3.2, 3.3, 3.7]);
  assert.equal(inBins("deg", null), undefined);
  assert.equal(inBins("deg", 0.1)?.[0], 1.5);
});

test("only a file that is finished can be opened", () => {
  const status = (state: string, file: string | null) => ({ state, file }) as Parameters<typeof finishedFile>[0];
  assert.equal(finishedFile(status("running", "/a")), null);
  assert.equal(finishedFile(status("armed", "/a")), null);
  assert.equal(finishedFile(status("idle", "/a")), "/a");
  assert.equal(finishedFile(status("idle", null)), null);
  assert.equal(finishedFile(null), null);
});
