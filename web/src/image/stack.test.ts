import assert from "node:assert";
import { test } from "node:test";
import type { FrameHeader } from "./frame";
import { choiceText, imagesText, readStack, stepped, writeStack } from "./stack";

test("steps go through 1, 5, 10 and 50 images and stay at the ends", () => {
  const from = (images: number, by: number) => stepped({ by: "sum", images }, by).images;
  assert.deepEqual(
    [1, 5, 10, 50].map((images) => [from(images, -1), from(images, 1)]),
    [
      [1, 5],
      [1, 10],
      [5, 50],
      [10, 50],
    ],
  );
  assert.equal(stepped({ by: "maximum", images: 5 }, 1).by, "maximum");
});

test("what is written is read, and nothing else", () => {
  for (const images of [1, 5, 10, 50]) {
    assert.deepEqual(readStack(writeStack({ by: "sum", images })), { by: "sum", images });
  }
  assert.deepEqual(readStack("maximum,50"), { by: "maximum", images: 50 });
  for (const text of [null, "", "sum", "sum,0", "sum,7", "mean,5"]) assert.equal(readStack(text), null);
});

test("words say what a frame is of", () => {
  const words = (stack: FrameHeader["stack"]) => imagesText({ image: 50, stack } as FrameHeader);
  assert.equal(words(null), "image 50");
  assert.equal(words({ by: "sum", images: 10, first: 41 }), "sum of images 41 to 50");
  assert.equal(words({ by: "maximum", images: 3, first: 48 }), "maximum of images 48 to 50");
  assert.equal(words({ by: "sum", images: 5, first: 41 }), "sum of images 41 to 50 (5 of them)");
  assert.equal(words({ by: "sum", images: 1, first: 50 }), "image 50, no other is there for the sum");
  assert.equal(choiceText({ by: "maximum", images: 5 }), "Maximum of 5");
});
