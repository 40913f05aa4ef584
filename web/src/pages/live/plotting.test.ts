import assert from "node:assert/strict";
import { test } from "node:test";
import { wholeRange, yRangeUpTo } from "./plotting";

test("one image alone stands in the middle of an axis that has no other", () => {
  assert.deepEqual(wholeRange(null, 7, 7), [6.5, 7.5]);
  assert.deepEqual(wholeRange(null, 0, 9), [0, 9]);
  assert.deepEqual(wholeRange(null, null, null), [0, 1]);
});

test("no rate is above 100 percent, and small ones can be seen", () => {
  const range = yRangeUpTo(100);
  assert.deepEqual(range(null, 0, 100), [0, 100]);
  assert.deepEqual(range(null, 0, 61), [0, 100]);
  assert.deepEqual(range(null, 1, 5.5), [0, 10]);
  assert.deepEqual(range(null, 0, 2), [0, 2]);
  assert.deepEqual(range(null, 0, 0), [0, 100]);
  assert.deepEqual(range(null, null, null), [0, 100]);
});
