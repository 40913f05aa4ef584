import assert from "node:assert/strict";
import { test } from "node:test";
import { asKnown, inOrder, resultText, resultWords } from "./resultWords";

test("names and numbers of results in words", () => {
  assert.deepEqual(resultWords("resolution_angstrom"), { words: "resolution", unit: "Å" });
  assert.deepEqual(resultWords("hit rate"), { words: "hit rate", unit: "" });
  assert.deepEqual(resultWords("spots_on_ice"), { words: "spots on ice", unit: "" });
  assert.equal(resultText("is_hit", 1), "yes");
  assert.equal(resultText("is_hit", null), "–");
  assert.equal(resultText("sum_value", 2336542), "2\u202f336\u202f542");
  assert.equal(resultText("resolution_angstrom", 2.16149), "2.1615 Å");
  assert.equal(resultText("angle_deg", 29.75), "29.75°");
  assert.equal(resultText("angle_deg", null), "–");
});

test("nothing is said of an image that was not analysed but what is known without that", () => {
  const results: [string, number][] = [
    ["valid_pixels", 9],
    ["angle_deg", 2.5],
    ["is_analysed", 0],
    ["spots", 0],
    ["is_hit", 0],
  ];
  assert.deepEqual(
    asKnown(results).map(([, value]) => value),
    [9, 2.5, 0, null, null],
  );
  const ofStream: [string, number][] = [
    ["is_analysed", 0],
    ["valid_pixels", 0],
    ["max_value", 0],
  ];
  assert.deepEqual(
    asKnown(ofStream).map(([, value]) => value),
    [0, null, null],
  );
  const analysed: [string, number][] = [
    ["is_analysed", 1],
    ["spots", 0],
  ];
  assert.deepEqual(asKnown(analysed), analysed);
});

test("what people look for comes first, and nothing comes twice", () => {
  const names = ["valid_pixels", "spots", "nPeaks", "is_hit", "region_sum", "background"].map(
    (name): [string, number] => [name, 1],
  );
  assert.deepEqual(
    inOrder(names).map(([name]) => name),
    ["is_hit", "spots", "background", "valid_pixels"],
  );
});
