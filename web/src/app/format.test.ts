import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bytes,
  bytesPerSecond,
  count,
  duration,
  elapsed,
  fileName,
  microseconds,
  percent,
  rateHz,
  UNKNOWN,
} from "./format";

test("what is not known is a dash", () => {
  for (const format of [count, rateHz, bytes, bytesPerSecond, percent, microseconds, duration, elapsed]) {
    for (const value of [null, undefined, Number.NaN]) assert.equal(format(value), UNKNOWN);
  }
  assert.equal(fileName(null), UNKNOWN);
});

test("numbers are readable", () => {
  assert.equal(count(1234567), "1\u202f234\u202f567");
  assert.equal(rateHz(0), "0 Hz");
  assert.equal(rateHz(1999.7), "2\u202f000 Hz");
  assert.equal(rateHz(0.5), "0.50 Hz");
  assert.deepEqual([99_949, 281_600, 2_816_000].map(rateHz), ["99\u202f949 Hz", "282 kHz", "2.82 MHz"]);
  assert.deepEqual([12.9, 300, 12_000, 400_000].map(elapsed), ["12 s", "5 min", "3 h 20 min", "4 days"]);
  assert.equal(bytes(999), "999 B");
  assert.equal(bytes(999_600), "1.0 MB");
  assert.equal(bytesPerSecond(4.1e9), "4.1 GB/s");
  assert.equal(percent(0.074), "7.4 %");
  assert.equal(percent(1), "100 %");
  assert.equal(microseconds(715.4), "715 µs");
  assert.equal(microseconds(93847), "93.8 ms");
  assert.equal(duration(15), "00:15");
  assert.equal(duration(3723), "1:02:03");
  assert.equal(duration(183600), "2 d 03:00");
  assert.equal(fileName("/data/run03_master.h5"), "run03_master.h5");
});
