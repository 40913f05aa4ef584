import assert from "node:assert/strict";
import { test } from "node:test";
import type { DetectorStatistics } from "../../live/types";
import { topOf, withoutRepeats } from "./axes";
import { KEPT_S, type Sample, sampleOf, withSample } from "./history";
import { ledgerRows, queueName } from "./names";

const statistics = (rates: Record<string, number>, queues: Record<string, number> = {}): DetectorStatistics =>
  ({ rates, queues }) as unknown as DetectorStatistics;

test("losses come first, and only if there are any", () => {
  const rows = ledgerRows({ images_lost: 0, received: 10, late: 2, new_counter: 1 });
  assert.deepEqual(
    rows.map(({ name, isLoss }) => [name, isLoss]),
    [
      ["late", true],
      ["images_lost", false],
      ["new_counter", false],
      ["received", false],
    ],
  );
  assert.match(rows[0]?.meaning ?? "", /closed/);
  assert.equal(queueName("output_preview"), "output to preview");
});

test("what was not told is not a zero", () => {
  const sample = sampleOf(statistics({ committed_hz: 5 }), 1);
  assert.deepEqual([sample.receivedHz, sample.committedHz, sample.bufferPercent], [null, 5, null]);
  assert.equal(sampleOf(statistics({}, { ring: 0.1, packed_ring: 0.5 }), 1).bufferPercent, 50);
});

test("five minutes are kept, with a gap where nothing came", () => {
  let samples: Sample[] = [];
  for (let second = 0; second < 2 * KEPT_S; second++) samples = withSample(samples, sampleOf(statistics({}), second));
  assert.equal(samples.length, KEPT_S);
  samples = withSample(samples, sampleOf(statistics({ written_hz: 1 }), 2 * KEPT_S + 9));
  assert.deepEqual(
    [samples.at(-2)?.timeS, samples.at(-2)?.writtenHz, samples.at(-1)?.writtenHz],
    [2 * KEPT_S, null, 1],
  );
});

test("axes end at sensible numbers, and no label comes twice", () => {
  assert.equal(topOf(null, 1000), 1000);
  assert.equal(topOf(2000, 1000), 2200);
  assert.equal(topOf(100, 1, 100), 100);
  assert.deepEqual(withoutRepeats(["0 Hz", "1 Hz", "1 Hz", "2 Hz"]), ["0 Hz", "1 Hz", "", "2 Hz"]);
});
