import assert from "node:assert/strict";
import { test } from "node:test";
import type { Contact, DetectorStatus } from "../live/types";
import { type Verb, whyNot } from "./commands";

const operator: Contact = { kind: "connected", name: "alice", role: "operate", version: "" };
const status = (state: string, draining = false): DetectorStatus =>
  ({ state, draining, kind: "udp" }) as unknown as DetectorStatus;
const possible = (verb: Verb, state: string, draining = false): boolean =>
  whyNot(verb, operator, status(state, draining)) === null;

test("each state has its commands", () => {
  const states = ["idle", "armed", "running", "error"];
  const table: [Verb, string][] = [
    ["arm", "yes no no yes"],
    ["start", "yes yes no yes"],
    ["trigger", "no yes yes no"],
    ["stop", "no yes yes no"],
    ["cancel", "no yes yes yes"],
    ["pedestal", "yes no no yes"],
  ];
  for (const [verb, row] of table) {
    assert.equal(states.map((state) => (possible(verb, state) ? "yes" : "no")).join(" "), row, verb);
  }
});

test("while the last images are written only a cancel is possible", () => {
  assert.ok(possible("cancel", "running", true));
  for (const verb of ["arm", "start", "trigger", "stop"] as const) assert.ok(!possible(verb, "running", true), verb);
});

test("who may only look is told so, and nothing is possible without contact", () => {
  const viewer: Contact = { ...operator, name: "bob", role: "view" };
  assert.match(whyNot("cancel", viewer, status("running")) ?? "", /bob may only look/);
  const lost: Contact = { kind: "lost", since: new Date(), attempts: 1 };
  assert.match(whyNot("stop", lost, status("running")) ?? "", /no contact/);
  assert.match(whyNot("arm", operator, null) ?? "", /not known/);
});
