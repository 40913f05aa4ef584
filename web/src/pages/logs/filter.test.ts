import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServiceEvent } from "../../api/client";
import { isShown } from "./filter";

const event = {
  event: "file",
  detector: "jf",
  severity: "info",
  message: "run03 is closed",
} as unknown as ServiceEvent;
const all = { level: "info", text: "", detector: null } as const;

test("filters by severity, words and detector", () => {
  assert.ok(isShown(event, all));
  assert.ok(isShown({ ...event, severity: "success" }, all));
  assert.ok(!isShown(event, { ...all, level: "warning" }));
  assert.ok(isShown({ ...event, severity: "error" }, { ...all, level: "warning" }));
  assert.ok(isShown(event, { ...all, text: "CLOSED file" }));
  assert.ok(!isShown(event, { ...all, text: "closed eiger" }));
  assert.ok(!isShown(event, { ...all, detector: "eiger" }));
  assert.ok(isShown({ ...event, detector: null }, { ...all, detector: "eiger" }), "of the service itself");
});
