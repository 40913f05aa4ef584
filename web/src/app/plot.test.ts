import assert from "node:assert/strict";
import { test } from "node:test";
import { aloneIn } from "./plot";

test("numbers without neighbours", () => {
  assert.deepEqual(aloneIn([1, null, 2, 3, null, 0, null]), [0, 5]);
  assert.deepEqual(aloneIn([4]), [0]);
  assert.deepEqual(aloneIn([]), []);
});
