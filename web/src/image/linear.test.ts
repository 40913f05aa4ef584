import assert from "node:assert/strict";
import { test } from "node:test";
import { CODE_FIRST, CODE_SATURATED, linearCoding, linearToCode, numbersOfCodes, rangeOfCoding } from "./code16";
import { axisFor, placeOnAxis } from "./histogram";

test("numbers that differ little have codes of their own", () => {
  const range: [number, number] = [2600, 3200];
  const coding = linearCoding(range);
  assert.deepEqual(rangeOfCoding(coding), range);
  assert.equal(rangeOfCoding("float"), null);
  const numbers = numbersOfCodes(coding);
  for (const value of [2600, 2866.51, 2866.53, 3200]) {
    assert.ok(Math.abs((numbers[linearToCode(value, range)] as number) - value) < 0.01);
  }
  assert.notEqual(linearToCode(2866.51, range), linearToCode(2866.53, range));
  assert.deepEqual([linearToCode(0, range), linearToCode(1e9, range)], [CODE_FIRST, CODE_SATURATED - 1]);
  const same = rangeOfCoding(linearCoding([5, 5]));
  assert.ok(same !== null && same[1] > 5);
});

test("their axis is straight and has all of the range", () => {
  const axis = axisFor([], linearCoding([2600, 3200]), null);
  assert.ok(Math.abs(placeOnAxis(2900, axis) - 0.5) < 1e-3);
});
