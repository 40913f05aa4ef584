import assert from "node:assert";
import { test } from "node:test";
import type { FrameHeader, Results } from "../../image/frame";
import { HIT_RATE, SEEN_MAX, Seen } from "./seen";

const header = (image: number, results: Results, run = 1) => ({ detector: "jf", run, image, results }) as FrameHeader;

test("images in the order of their numbers, each once", () => {
  const seen = new Seen();
  for (const image of [3, 7, 5, 7, 1]) seen.add(header(image, { spots: image }));
  assert.deepEqual(seen.images, [1, 3, 5, 7]);
  assert.deepEqual(seen.line("spots"), [1, 3, 5, 7]);
  assert.equal(seen.add(header(5, {})), false);
});

test("what an image does not have stays empty", () => {
  const seen = new Seen();
  seen.add(header(1, { spots: 4, list: [1, 2] }));
  seen.add(header(2, { spots: null, background: 0.5 }));
  assert.deepEqual(seen.names(), ["spots", "background"]);
  assert.deepEqual(seen.line("spots"), [4, null]);
  assert.deepEqual(seen.line("background"), [null, 0.5]);
  assert.deepEqual(seen.line("other"), [null, null]);
});

test("the rate of hits leaves out what was not analysed", () => {
  const seen = new Seen();
  for (const [image, hit, analysed] of [
    [0, 1, 1],
    [1, 0, 0],
    [2, 0, 1],
    [3, 1, 1],
    [4, 1, 1],
  ] as const) {
    seen.add(header(image, { is_hit: hit, is_analysed: analysed }));
  }
  assert.deepEqual(seen.line(HIT_RATE), [100, null, 50, 200 / 3, 75]);
});

test("a new run begins anew, and the memory has an end", () => {
  const seen = new Seen();
  for (let image = 0; image < SEEN_MAX + 5; image++) seen.add(header(image, { spots: 1 }));
  assert.equal(seen.images.length, SEEN_MAX);
  assert.equal(seen.images[0], 5);
  assert.equal(seen.line("spots").length, SEEN_MAX);
  seen.add(header(0, { spots: 1 }, 2));
  assert.deepEqual(seen.images, [0]);
});
