import assert from "node:assert";
import { test } from "node:test";
import { pooled, shrinkFactor } from "./pool";

test("a bright pixel survives wherever it is", () => {
  for (let place = 0; place < 35; place++) {
    const codes = new Uint16Array(35).fill(4112);
    codes[place] = 5000;
    const small = pooled({ codes, columns: 7, rows: 5 }, 3, null);
    assert.deepEqual([small.columns, small.rows], [3, 2]);
    assert.deepEqual(small.codes.filter((code) => code === 5000).length, 1);
    assert.equal(small.codes[Math.floor(place / 21) * 3 + Math.floor((place % 7) / 3)], 5000);
  }
});

test("special pixels: saturated wins, numbers hide the others, then missing, invalid, masked", () => {
  const of = (...codes: number[]) => pooled({ codes: Uint16Array.from(codes), columns: 2, rows: 2 }, 2, null).codes[0];
  assert.equal(of(65535, 5000, 1, 0), 65535);
  assert.equal(of(0, 1, 2, 16), 16);
  assert.equal(of(1, 2, 0, 1), 0);
  assert.equal(of(1, 2, 1, 1), 2);
  assert.equal(of(1, 1, 1, 1), 1);
});

test("rows can stay apart", () => {
  const small = pooled({ codes: Uint16Array.of(20, 30, 40, 50, 60, 70), columns: 3, rows: 2 }, 2, null, 1);
  assert.deepEqual([small.columns, small.rows, ...small.codes], [2, 2, 30, 40, 60, 70]);
});

test("memory of the right size is used again", () => {
  const from = { codes: new Uint16Array(16), columns: 4, rows: 4 };
  const memory = new Uint16Array(4);
  assert.equal(pooled(from, 2, memory).codes, memory);
  assert.notEqual(pooled(from, 4, memory).codes, memory);
});

test("frames shrink until a dot is as large as one of the screen", () => {
  assert.deepEqual([3, 1, 0.99, 0.5, 0.49, 0.34, 0.1].map(shrinkFactor), [1, 1, 2, 2, 3, 3, 10]);
});
