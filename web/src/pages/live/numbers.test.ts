import assert from "node:assert";
import { test } from "node:test";
import { listOf, numberOf, percentOf, shortNumber, singleResults } from "./numbers";

test("numbers as people read them", () => {
  assert.equal(shortNumber(1234567), "1234567");
  assert.equal(shortNumber(Math.PI), "3.1416");
  assert.equal(shortNumber(null), "–");
  assert.equal(shortNumber(Number.NaN), "–");
  assert.equal(percentOf(1, 3), "33.3 %");
  assert.equal(percentOf(0, 0), "–");
});

test("results by their kind", () => {
  const results = { spots: 3, resolution_angstrom: null, peakXPosRaw: [1, 2] };
  assert.deepEqual(singleResults(results), [
    ["spots", 3],
    ["resolution_angstrom", null],
  ]);
  assert.deepEqual(listOf(results, "peakXPosRaw"), [1, 2]);
  assert.deepEqual([listOf(results, "spots"), listOf(results, "resolution_angstrom")], [[3], [null]]);
  assert.equal(listOf(results, "no such result"), null);
  assert.equal(listOf(null, "spots"), null);
  assert.equal(numberOf(results, "spots"), 3);
  assert.equal(numberOf(results, "peakXPosRaw"), null);
  assert.deepEqual(singleResults(null), []);
});
