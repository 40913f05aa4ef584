import assert from "node:assert/strict";
import { test } from "node:test";
import type { Contact, DetectorStatus } from "../live/types";
import { heldByOther, operatorWords } from "./operator";

const held = (name: string, action: string, age_s: number): DetectorStatus =>
  ({ operator: { name, action, since: "2026-11-28T05:44:19+01:00", age_s } }) as unknown as DetectorStatus;
const connected = (name: string): Contact => ({ kind: "connected", name, role: "operate", version: "1" });

test("it says who did what and how long ago", () => {
  assert.equal(operatorWords(held("alice", "arm", 12.4)), "armed by alice 12 s ago");
  assert.equal(operatorWords(held("bob", "start", 300)), "started by bob 5 min ago");
  assert.equal(operatorWords(null), null);
  assert.equal(operatorWords({ operator: null } as unknown as DetectorStatus), null);
});

test("somebody else is known by the name of the token only", () => {
  assert.equal(heldByOther(connected("bob"), held("alice", "arm", 1)), "alice");
  assert.equal(heldByOther(connected("alice"), held("alice", "arm", 1)), null);
  assert.equal(heldByOther(connected("local"), held("local 127.0.0.1", "arm", 1)), null);
  assert.equal(heldByOther({ kind: "connecting" }, held("alice", "arm", 1)), null);
  assert.equal(heldByOther(connected("bob"), null), null);
});
