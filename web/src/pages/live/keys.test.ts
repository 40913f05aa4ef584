import assert from "node:assert";
import { test } from "node:test";
import { Viewer } from "../../image/viewer";
import type { Connection } from "../../live/types";
import { actOnKey, KEYS } from "./keys";

// Only what the keys below touch.
const viewer = new Viewer({ ring: { value: { first: 3, last: 9, run: 1 } } } as unknown as Connection);
const press = (key: string, hasShift = false) => actOnKey(viewer, key, hasShift);

test("keys change what they say", () => {
  press("i");
  press("c");
  press("l");
  assert.deepEqual(viewer.look.value, { map: "viridis", isInverted: false, scale: "log", marksSpecial: true });
  press("s");
  press("r");
  assert.deepEqual(viewer.layers.value, { spots: false, rings: true, ice: false, beam: true });
  press("End");
  assert.equal(viewer.source.value, 9);
  press("ArrowLeft");
  assert.equal(viewer.source.value, 8);
  press(" ");
  assert.equal(viewer.source.value, "latest");
});

test("keys that mean nothing are left to the browser", () => {
  for (const key of ["x", "Tab", "constructor", "ArrowUp"]) assert.equal(press(key), false);
  assert.equal(press("I", true), false);
});

test("each letter of the list does something", () => {
  for (const { key } of KEYS) {
    if (key.length === 1 && key !== "g") assert.equal(press(key), true, key);
  }
});
