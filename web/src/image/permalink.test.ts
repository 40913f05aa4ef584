import assert from "node:assert";
import { test } from "node:test";
import { readShown, type Shown, writeShown } from "./permalink";

test("what is written is read", () => {
  const shown: Shown = {
    detector: "jf 1",
    image: 17,
    view: { x: 512.5, y: 100.25, scale: 4 },
    contrast: { low: -1, high: 12.5 },
    map: "viridis",
    isInverted: false,
    scale: "log",
    layers: "smbop",
    file: "/data/a run/lyso & more_master.h5",
    stack: { by: "maximum", images: 10 },
  };
  assert.deepEqual(readShown(`#/live?${writeShown(shown)}`), shown);
  assert.deepEqual(readShown(`#/live?${writeShown({ image: "hit" })}`), { image: "hit" });
});

test("nothing is read from nothing, or from nonsense", () => {
  assert.deepEqual(readShown("#/live"), {});
  const nonsense = "image=-3&view=1,2&contrast=5,5&map=rainbow&invert=yes&scale=cube&layers=xyz&stack=sum,7&file=";
  assert.deepEqual(readShown(`#/live?${nonsense}`), {});
  assert.deepEqual(readShown("#/live?view=1,2,0&contrast=,&image=1e9"), {});
});
