import assert from "node:assert/strict";
import { test } from "node:test";
import type { CalibrationReport, CalibrationRow } from "../../api/client";
import { ageOf, ageWords, maskedWords, modulesOf, reasonsOf, remarksOf, shift } from "./report";

const row = (fields: Partial<CalibrationRow>): CalibrationRow => ({
  ...{ module: 0, cell: 3, stage: "g0", taken: null, frames: 80, median_pedestal_adu: 2866.5, median_rms_adu: 29.5 },
  ...{ median_gain_adu_per_kev: 41, masked_pixels: 0, masked: {}, good: true, remarks: [], since_previous: null },
  ...fields,
});

const report = (fields: Partial<CalibrationReport>): CalibrationReport => ({
  ...{ detector: "jf", kind: "konkordia", files: ["cal.h5"], gain_files: [], modules: 1, cells: [3] },
  ...{ stages: ["g0", "g1", "g2"], taken: null, age_s: null, recommended_age_s: null, max_age_s: null },
  ...{ created: "", hash: "", detector_serial: "", gain_source: "", module_ids: [], refused: null, reasons: [] },
  ...{ rows: [], previous: null },
  ...fields,
});

test("rows are put together by cell and module", () => {
  const rows = [row({ module: 1 }), row({ cell: 0 }), row({}), row({ stage: "g1" })];
  const found = modulesOf(rows).map(({ module, cell, stages }) => [cell, module, stages.length]);
  assert.deepEqual(found, [
    [0, 0, 1],
    [3, 0, 2],
    [3, 1, 1],
  ]);
});

test("masked pixels have their reasons, and remarks their stage", () => {
  const bad = row({ stage: "g1", good: false, remarks: ["few frames", "1.5 % masked"] });
  assert.equal(maskedWords(row({ masked_pixels: 76, masked: { dead: 49, noisy: 27 } })), "76: 49 dead, 27 noisy");
  assert.equal(maskedWords(row({})), "0");
  assert.equal(remarksOf({ module: 0, cell: 3, stages: [row({}), bad] }), "G1: few frames; 1.5 % masked");
  assert.equal(remarksOf({ module: 0, cell: 3, stages: [row({})] }), null);
  const reasons = [
    { bit: 1, name: "dead" },
    { bit: 3, name: "noisy" },
  ];
  assert.deepEqual(
    [0, 2, 10].map((bits) => reasonsOf(bits, reasons)),
    ["good", "dead", "dead, noisy"],
  );
});

test("the age goes on while the page is shown", () => {
  assert.deepEqual([30, 2520, 9000, 400_000].map(ageWords), ["less than a minute", "42 min", "2.5 h", "4 days"]);
  const young = ageOf(report({ age_s: 3500, recommended_age_s: 3600 }), 20);
  assert.deepEqual(young, {
    words: "Pedestals taken 58 min ago",
    limit: "recommended: at most 60 min",
    isTooOld: false,
  });
  assert.equal(ageOf(report({ age_s: 3500, recommended_age_s: 3600 }), 120).isTooOld, true);
  assert.equal(ageOf(report({ age_s: 3500, max_age_s: 3000 }), 0).isTooOld, true);
  assert.equal(ageOf(report({}), 0).isTooOld, false);
  assert.match(ageOf(report({}), 0).words, /not known/);
});

test("a shift has its sign, and none is a dash", () => {
  assert.deepEqual([1.234, -1, 0, null].map(shift), ["+1.23", "-1.00", "0.00", "–"]);
});
