import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServiceEvent } from "../../api/client";
import { checkPedestal, EMPTY_PEDESTAL, measurement, mergeEvents } from "./pedestal";

const event = (id: number, time: string, data: unknown = {}): ServiceEvent =>
  ({ id, time, event: "pedestal", severity: "warning", message: "m", data }) as unknown as ServiceEvent;

test("what is left empty is as the service has it", () => {
  assert.deepEqual(checkPedestal(EMPTY_PEDESTAL), { request: { stage: "all" }, wrong: {} });
  const form = { ...EMPTY_PEDESTAL, frames: "400", skip: "0", file: " today ", isForced: true };
  assert.deepEqual(checkPedestal(form).request, { stage: "all", frames: 400, skip: 0, file: "today", force: true });
  assert.deepEqual(Object.keys(checkPedestal({ ...EMPTY_PEDESTAL, frames: "0", skip: "-1" }).wrong), [
    "frames",
    "skip",
  ]);
});

test("the table of a measurement is read from its event", () => {
  const rows = [
    { module: 1, cell: 3, stage: "g0", frames: 400, median_pedestal_adu: 2866.6, good: true, verdict: "good" },
  ];
  const read = measurement(event(1, "t", { pedestal: { rows } }));
  assert.equal(read.rows[0]?.stage, "G0");
  assert.equal(read.rows[0]?.rmsAdu, null);
  assert.deepEqual(measurement(event(1, "t", { pedestal: null })).rows, []);
  assert.equal(measurement(event(1, "t", { pedestal: { fix: "close the shutter" } })).hint, "close the shutter");
});

test("events that came twice are shown once, also when their numbers began again", () => {
  const [a, b, c] = [
    event(7, "2026-01-01T00:00:00Z"),
    event(8, "2026-01-01T00:00:01Z"),
    event(1, "2026-01-02T00:00:00Z"),
  ];
  assert.deepEqual(mergeEvents([a, b], [b, c]), [a, b, c]);
});
