import assert from "node:assert/strict";
import { test } from "node:test";
import { signal } from "@preact/signals";
import { ApiProblem, type Machine } from "../api/client";
import { MachineWatch } from "./machine";

const machine = (cores: number): Machine => ({ cores }) as unknown as Machine;
const passed = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

test("it is asked only while somebody wants to know it and the page is seen", async () => {
  let [asked, isSeen] = [0, true];
  const detector = signal<string | null>("eiger");
  const ask = async () => machine(++asked);
  const watch = new MachineWatch({ ask, isAsking: () => isSeen, detector });
  await passed(30);
  assert.equal(asked, 0);
  const leave = watch.want(5);
  await passed(60);
  assert.ok(asked >= 3, String(asked));
  assert.equal(watch.value.value?.cores, asked);
  isSeen = false;
  await passed(20);
  const before = asked;
  await passed(40);
  assert.equal(asked, before);
  isSeen = true;
  await passed(40);
  assert.ok(asked > before);
  leave();
  await passed(20);
  const last = asked;
  await passed(40);
  assert.equal(asked, last);
});

test("the answer of another detector is not shown, and an old service is asked once", async () => {
  const detector = signal<string | null>("a");
  let asked = 0;
  const slow = new MachineWatch({ ask: () => passed(20).then(() => machine(++asked)), isAsking: () => true, detector });
  const leave = slow.want(1000);
  await passed(5);
  detector.value = "b";
  await passed(30);
  assert.equal(slow.value.value, null);
  leave();
  let old = 0;
  const refuse = async (): Promise<Machine> => {
    old += 1;
    throw new ApiProblem({ code: "not_found", detail: "there is no such path", status: 404 });
  };
  const watch = new MachineWatch({ ask: refuse, isAsking: () => true, detector });
  watch.want(5);
  await passed(40);
  assert.equal(old, 1);
  assert.equal(watch.value.value, null);
});
