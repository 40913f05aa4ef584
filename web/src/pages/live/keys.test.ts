import assert from "node:assert";
import { test } from "node:test";
import { Viewer } from "../../image/viewer";
import type { Connection } from "../../live/types";
import { actOnKey, KEYS } from "./keys";

// Only what the keys below touch.
const connection = { ring: { value: { first: 3, last: 9, run: 1 } }, noImage: { value: null } };
const viewer = new Viewer(connection as unknown as Connection);
const press = (key: string, hasShift = false) => actOnKey(viewer, key, hasShift);

test("keys change what they say", () => {
  press("i");
  press("c");
  press("l");
  assert.deepEqual(viewer.look.value, { map: "viridis", isInverted: false, scale: "log", marksSpecial: true });
  press("s");
  press("r");
  press("o");
  press("p");
  assert.deepEqual(viewer.layers.value, {
    ...{ spots: false, rings: true, ice: false, beam: true },
    ...{ modules: true, regions: false },
  });
  press("End");
  assert.equal(viewer.source.value, 9);
  press("ArrowLeft");
  assert.equal(viewer.source.value, 8);
  press(" ");
  assert.equal(viewer.source.value, "latest");
});

test("plus and minus choose how many images are put together", () => {
  viewer.stack.value = { by: "maximum", images: 1 };
  press("+", true);
  assert.deepEqual(viewer.stack.value, { by: "maximum", images: 5 });
  press("-");
  press("-");
  assert.equal(viewer.stack.value.images, 1);
  for (let n = 0; n < 9; n++) press("+");
  assert.equal(viewer.stack.value.images, 50);
});

test("in a file the keys go through its images", () => {
  viewer.openFile("/data/a_master.h5", 2);
  viewer.fileImages.value = 5;
  press("ArrowRight");
  assert.equal(viewer.source.value, 3);
  press("Home");
  assert.equal(viewer.source.value, 0);
  press("End");
  press("ArrowRight");
  assert.equal(viewer.source.value, 4);
  press("h");
  assert.equal(viewer.source.value, 4);
  press(" ");
  assert.equal(viewer.playback.isPlaying.value, true);
  assert.equal(viewer.source.value, 0);
  press(" ");
  assert.equal(viewer.playback.isPlaying.value, false);
  viewer.closeFile();
  assert.equal(viewer.source.value, "latest");
});

test("keys that mean nothing are left to the browser", () => {
  for (const key of ["y", "Tab", "constructor", "ArrowUp"]) assert.equal(press(key), false);
  assert.equal(press("I", true), false);
});

test("each letter of the list does something", () => {
  for (const { key } of KEYS) {
    if (key.length === 1 && key !== "g") assert.equal(press(key), true, key);
  }
});
