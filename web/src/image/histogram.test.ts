import assert from "node:assert";
import { test } from "node:test";
import { countToCode } from "./code16";
import { axisFor, barsOf, countCodes, placeOnAxis, rangeOf, valueOnAxis } from "./histogram";

test("values and places are inverse, below zero too", () => {
  for (const axis of [axisFor([-10, 1000], "count", null), axisFor([-0.001, 0.2], "float", null)]) {
    for (const place of [0, 0.01, 0.5, 1])
      assert.ok(Math.abs(placeOnAxis(valueOnAxis(place, axis), axis) - place) < 1e-9);
  }
});

test("the axis has all values and grows only", () => {
  const axis = axisFor([3, 100], "count", null);
  assert.deepEqual([axis.low, axis.high], [0, 128]);
  assert.deepEqual(axisFor([1, 90], "count", axis), axis);
  assert.equal(axisFor([-3, 90], "count", axis).low, -4);
});

test("bars of a frame, without special pixels", () => {
  const codes = Uint16Array.from([0, 1, 2, 65535, ...[0, 0, 0, 5, 100].map(countToCode)]);
  const counted = countCodes(codes);
  assert.deepEqual(rangeOf(counted, "count"), [0, 100]);
  const axis = axisFor([0, 100], "count", null);
  const bars = new Float64Array(10);
  barsOf(counted, "count", axis, bars);
  assert.equal(bars[0], 1);
  assert.equal(bars.filter((bar) => bar > 0).length, 3);
  assert.equal(rangeOf(countCodes(Uint16Array.of(0, 1, 65535)), "count"), null);
});
