import assert from "node:assert/strict";
import { test } from "node:test";
import type { ModulePackets } from "../../api/client";
import type { DetectorStatistics } from "../../live/types";
import { topOf, withoutRepeats } from "./axes";
import { KEPT_S, type Sample, sampleOf, withSample } from "./history";
import { groupsOf, lossPoints, lostShare } from "./load";
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

test("threads are grouped by what they do, and idle ones are counted only", () => {
  const groups = groupsOf([
    { name: "rx-1", group: "receive", cores: 0.2 },
    { name: "http", group: "http", cores: 0 },
    { name: "rx-0", group: "receive", cores: 0.5 },
    { name: "rx-2", group: "receive", cores: 0 },
  ]);
  assert.deepEqual(
    groups.map(({ group, cores, busy, idle }) => [group, cores, busy.map(({ name }) => name), idle]),
    [
      ["receive", 0.7, ["rx-0", "rx-1"], 1],
      ["http", 0, [], 1],
    ],
  );
});

const module = (lost: number, kernel: number, noSlot = 0, late = 0): ModulePackets => ({
  module: 0,
  received_packets: 90,
  lost_packets: lost,
  kernel_dropped_packets: kernel,
  no_slot_packets: noSlot,
  late_packets: late,
});

test("what no counter here saw was lost before this machine", () => {
  const points = lossPoints([module(10, 2), module(20, 3, 1, 4)]);
  assert.deepEqual(
    points.map(({ name, packets }) => [name, packets]),
    [
      ["before this machine", 20],
      ["buffer of the socket", 5],
      ["too late", 4],
      ["ring of frames", 1],
    ],
  );
  assert.ok(points.every(({ whatToDo }) => whatToDo.length > 20));
  assert.deepEqual(
    lossPoints([module(0, 0), module(3, 5)]).map(({ name }) => name),
    ["buffer of the socket"],
  );
  assert.equal(lostShare(module(10, 0)), 0.1);
});
