import assert from "node:assert";
import { test } from "node:test";
import { CODE_FIRST, CODE_SATURATED, codeToValue, countToCode, floatToCode, numbersOfCodes } from "./code16";

test("all codes of counts are in order and come back", () => {
  const numbers = numbersOfCodes("count");
  for (let code = CODE_FIRST; code < CODE_SATURATED; code++) {
    const number = numbers[code] as number;
    assert.ok(Number.isInteger(number));
    assert.equal(countToCode(number), code);
    if (code > CODE_FIRST) assert.ok(number > (numbers[code - 1] as number), `code ${code}`);
  }
});

test("counts from -4096 to 20464 are exact, others are limited", () => {
  const numbers = numbersOfCodes("count");
  for (let count = -4096; count <= 20464; count++) assert.equal(numbers[countToCode(count)], count);
  assert.equal(countToCode(-4097), 16);
  assert.equal(countToCode(-2147483392), 16);
  assert.equal(countToCode(20464), 24576);
  assert.equal(numbers[24577], 20471);
  assert.equal(countToCode(1e30), 65534);
});

test("the code of a count never falls as the count grows, and is near", () => {
  const numbers = numbersOfCodes("count");
  let last = 0;
  for (let count = 20000; count < 2147483392; count = Math.ceil(count * 1.00007)) {
    const code = countToCode(count);
    assert.ok(code >= last);
    assert.ok(Math.abs((numbers[code] as number) / count - 1) < 2e-4);
    last = code;
  }
});

test("all codes of floats are in order and come back", () => {
  const numbers = numbersOfCodes("float");
  let last = Number.NEGATIVE_INFINITY;
  for (let code = 128; code < 0xff80; code++) {
    const number = numbers[code] as number;
    assert.equal(floatToCode(number), code);
    assert.ok(number > last || (number === 0 && last === 0), `code ${code}`);
    last = number;
  }
  assert.equal(floatToCode(0), 0x8000);
  assert.equal(floatToCode(1), 0xbf80);
  assert.equal(floatToCode(-1), 0x407f);
  assert.ok(floatToCode(Math.PI) < floatToCode(3.2));
});

test("special codes have no number", () => {
  for (const coding of ["count", "float"] as const) {
    assert.deepEqual(codeToValue(0, coding), { kind: "missing" });
    assert.deepEqual(codeToValue(1, coding), { kind: "masked" });
    assert.deepEqual(codeToValue(2, coding), { kind: "invalid" });
    assert.deepEqual(codeToValue(15, coding), { kind: "invalid" });
    assert.deepEqual(codeToValue(65535, coding), { kind: "saturated" });
    assert.ok(Number.isNaN(numbersOfCodes(coding)[0]));
  }
  assert.deepEqual(codeToValue(4112, "count"), { kind: "number", value: 0 });
});
