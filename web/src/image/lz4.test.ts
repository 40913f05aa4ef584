import assert from "node:assert";
import { test } from "node:test";
import { Lz4Error, unpackLz4 } from "./lz4";

function unpack(block: number[], length: number): number[] {
  const target = new Uint8Array(length);
  unpackLz4(Uint8Array.from(block), target);
  return [...target];
}

const wrong = (block: number[], length: number) => assert.throws(() => unpack(block, length), Lz4Error);

test("literals, and nothing at all", () => {
  assert.deepEqual(unpack([0x30, 1, 2, 3], 3), [1, 2, 3]);
  assert.deepEqual(unpack([0x00], 0), []);
  assert.deepEqual(unpack([], 0), []);
});

test("matches that overlap repeat what was written", () => {
  assert.deepEqual(unpack([0x10, 7, 1, 0, 0x10, 9], 6), [7, 7, 7, 7, 7, 9]);
  assert.deepEqual(unpack([0x20, 1, 2, 2, 0, 0x10, 9], 7), [1, 2, 1, 2, 1, 2, 9]);
  assert.deepEqual(unpack([0x40, 1, 2, 3, 4, 4, 0, 0x10, 9], 9), [1, 2, 3, 4, 1, 2, 3, 4, 9]);
});

test("long lengths go on in further bytes", () => {
  const literals = Array.from({ length: 300 }, (_, n) => n & 255);
  assert.deepEqual(unpack([0xf0, 255, 30, ...literals], 300), literals);
  assert.deepEqual(unpack([0x1f, 5, 1, 0, 255, 0, 0x10, 6], 276), [...new Array(275).fill(5), 6]);
});

test("hostile blocks are refused", () => {
  wrong([0x30, 1, 2], 3);
  wrong([0x30, 1, 2, 3], 2);
  wrong([0x30, 1, 2, 3], 4);
  wrong([0xf0], 20);
  wrong([0xf0, 255, 255], 2000);
  wrong([0x10, 7, 0, 0, 0x10, 9], 6);
  wrong([0x10, 7, 2, 0, 0x10, 9], 6);
  wrong([0x10, 7, 1], 6);
  wrong([0x1f, 7, 1, 0, 255], 6);
  wrong([0x1f, 7, 1, 0, 255, 255, 0], 64);
  wrong([], 1);
});

test("random bytes never write outside", () => {
  let seed = 12345;
  const random = () => {
    seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
    return (seed >> 8) & 255;
  };
  for (let round = 0; round < 3000; round++) {
    const around = new Uint8Array(96).fill(170);
    const block = Uint8Array.from({ length: random() & 63 }, random);
    try {
      unpackLz4(block, around.subarray(16, 80));
    } catch (error) {
      assert.ok(error instanceof Lz4Error);
    }
    assert.ok(around.subarray(0, 16).every((byte) => byte === 170));
    assert.ok(around.subarray(80).every((byte) => byte === 170));
  }
});
