import assert from "node:assert/strict";
import { test } from "node:test";
import { isFinished, verdict } from "./checks";
import { imageOf, liveLink, ratio, size } from "./facts";
import { describe, treeOf } from "./tree";

test("names become a tree, also those of groups that have no entry", () => {
  const group = (path: string) => ({ path, kind: "group" });
  const tree = treeOf([
    group("/entry"),
    { path: "/entry/title", kind: "dataset", shape: [], dtype: "text", value: "lyso" },
    group("/entry/data"),
    { path: "/entry/data/data_000001", kind: "link", target: "a_data_000001.h5:/entry/data/data" },
    { path: "/lost/one", kind: "dataset", shape: [4] },
  ]);
  assert.deepEqual(
    tree.map(({ name, inner }) => [name, inner.length]),
    [
      ["entry", 2],
      ["one", 0],
    ],
  );
  assert.equal(tree[0]?.inner[1]?.inner[0]?.name, "data_000001");
});

test("values come with their units, tables with type and dimensions, links with their targets", () => {
  const dataset = { path: "/a", kind: "dataset" };
  assert.equal(describe({ ...dataset, value: 0.25, units: "m" }), "0.25 m");
  assert.equal(describe({ ...dataset, value: "lyso" }), "lyso");
  assert.equal(describe({ ...dataset, value: [1, 2] }), "[1,2]");
  assert.equal(describe({ ...dataset, value: 0 }), "0");
  assert.equal(describe({ ...dataset, dtype: "uint16", shape: [5, 1030] }), "uint16, 5 × 1030");
  assert.equal(describe({ path: "/b", kind: "link", target: "a.h5:/entry" }), "→ a.h5:/entry");
});

test("a number of an image is one that the file has", () => {
  assert.deepEqual(
    ["0", " 9 ", "10", "-1", "", "x", "1.5"].map((text) => imageOf(text, 10)),
    [0, 9, null, null, null, null, null],
  );
  assert.equal(
    liveLink("jf 1", "/data/my run_master.h5", 3),
    "#/live?detector=jf%201&file=%2Fdata%2Fmy%20run_master.h5&image=3",
  );
});

test("a ratio that is not known is a dash", () => {
  assert.deepEqual([ratio(100, 10), ratio(100, 0), ratio(undefined, 10), ratio(0, 10)], ["10.0 ×", "–", "–", "–"]);
  assert.equal(size(1030, 514), "1030 × 514 pixels");
});

test("verdicts tell a damaged file from one whose run lost images", () => {
  const checks = (is_valid: boolean, is_whole: boolean) => ({ is_valid, is_whole, notes: [] });
  assert.deepEqual([checks(true, true), checks(true, false), checks(false, true)].map(verdict), [
    "valid",
    "valid, not complete",
    "not valid",
  ]);
  assert.deepEqual([isFinished({ state: "writing" }), isFinished({ state: "failed" })], [false, true]);
  assert.equal(isFinished({ state: "failed", problem: "no name" }), false);
});
