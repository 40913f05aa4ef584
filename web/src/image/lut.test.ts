import assert from "node:assert";
import { test } from "node:test";
import { CODES, countToCode, floatToCode } from "./code16";
import { type Colour, colourAt, MAP_NAMES, SPECIAL_COLOURS } from "./colours";
import { fillLut, LOOK_AT_FIRST, type Look, placeOf, sensible, valueAt } from "./lut";

const CONTRAST = { low: 0, high: 100 };

function lutOf(
  look: Partial<Look>,
  coding: "count" | "float" = "count",
  contrast = CONTRAST,
): (code: number) => number[] {
  const lut = new Uint32Array(CODES);
  fillLut(lut, contrast, { ...LOOK_AT_FIRST, ...look }, coding);
  const bytes = new Uint8Array(lut.buffer);
  return (code) => [...bytes.slice(4 * code, 4 * code + 4)];
}

test("dark spots on white at first", () => {
  const colour = lutOf({});
  assert.deepEqual(colour(countToCode(0)), [255, 255, 255, 255]);
  assert.deepEqual(colour(countToCode(-5)), [255, 255, 255, 255]);
  assert.deepEqual(colour(countToCode(100)), [0, 0, 0, 255]);
  assert.deepEqual(colour(countToCode(1e6)), [0, 0, 0, 255]);
});

test("brighter for more, in both scales and codings", () => {
  for (const scale of ["linear", "log"] as const) {
    const ofCounts = lutOf({ isInverted: false, scale });
    const ofFloats = lutOf({ isInverted: false, scale }, "float");
    for (let count = 1; count <= 100; count++) {
      assert.ok((ofCounts(countToCode(count))[0] as number) >= (ofCounts(countToCode(count - 1))[0] as number));
      assert.ok((ofFloats(floatToCode(count))[0] as number) >= (ofFloats(floatToCode(count - 1))[0] as number));
    }
  }
  const [linear, log] = [lutOf({ isInverted: false }), lutOf({ isInverted: false, scale: "log" })];
  assert.ok((log(countToCode(10))[0] as number) > (linear(countToCode(10))[0] as number));
});

test("special pixels look like no number, whatever the map", () => {
  const specials = Object.values(SPECIAL_COLOURS);
  const distance = (a: Colour, b: Colour) => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  for (const [n, special] of specials.entries()) {
    for (const other of specials.slice(0, n)) assert.ok(distance(special, other) > 60);
    for (const map of MAP_NAMES) {
      for (let place = 0; place <= 1; place += 1 / 512) {
        assert.ok(distance(special, colourAt(map, place)) > 45, `${special} is like ${map} at ${place}`);
      }
    }
  }
});

test("special pixels have their colours, or a quiet one", () => {
  const told = lutOf({});
  assert.deepEqual(told(0).slice(0, 3), SPECIAL_COLOURS.missing);
  assert.deepEqual(told(1).slice(0, 3), SPECIAL_COLOURS.masked);
  assert.deepEqual(told(2).slice(0, 3), SPECIAL_COLOURS.invalid);
  assert.deepEqual(told(65535).slice(0, 3), SPECIAL_COLOURS.saturated);
  const quiet = lutOf({ marksSpecial: false });
  assert.deepEqual(quiet(0), quiet(1));
  assert.deepEqual(quiet(65535).slice(0, 3), SPECIAL_COLOURS.saturated);
});

test("places and values are inverse", () => {
  for (const scale of ["linear", "log"] as const) {
    for (const coding of ["count", "float"] as const) {
      for (const value of [0, 1, 17, 99.5, 100]) {
        const place = placeOf(value, CONTRAST, scale, coding);
        assert.ok(Math.abs(valueAt(place, CONTRAST, scale, coding) - value) < 1e-9);
      }
    }
  }
});

test("ends of the contrast are apart", () => {
  assert.deepEqual(sensible({ low: 3, high: 3 }), { low: 3, high: 4 });
  assert.deepEqual(sensible({ low: Number.NaN, high: 3 }), { low: 0, high: 1 });
  assert.ok(sensible({ low: 1e12, high: 0 }).high > 1e12);
  assert.deepEqual(lutOf({}, "count", { low: 0, high: 0 })(countToCode(5)), [0, 0, 0, 255]);
});
