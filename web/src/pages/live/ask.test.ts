import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiProblem, type HitRate, type ResultPlot } from "../../api/client";
import type { DetectorStatus } from "../../live/types";
import { askResults, isGoing, momentOf } from "./ask";
import { HIT_RATE } from "./seen";

const names = (...all: string[]) => all.map((name) => ({ name, unit: "", meaning: "" }));

function serviceWith(results: ReturnType<typeof names>) {
  const asked: string[] = [];
  return {
    asked,
    results: async (detector: string, result: string | null) => {
      asked.push(`${detector} ${result}`);
      return { result, results } as ResultPlot;
    },
    hitRate: async (detector: string) => {
      asked.push(`${detector} rate`);
      return { bin_s: 1 } as HitRate;
    },
  };
}

test("first the names, then what was chosen, and later only that", async () => {
  const service = serviceWith(names("is_hit", "spots"));
  const first = await askResults(service, "jf", null, null);
  assert.equal(first.plot?.result, "spots");
  await askResults(service, "jf", "is_hit", first);
  assert.deepEqual(service.asked, ["jf null", "jf spots", "jf is_hit"]);
});

test("the rate of hits is asked for by its own path", async () => {
  const service = serviceWith(names("is_hit"));
  const answer = await askResults(service, "jf", HIT_RATE, null);
  assert.deepEqual(service.asked, ["jf null", "jf rate"]);
  assert.deepEqual([answer.plot, answer.hitRate?.bin_s, answer.choices?.length], [null, 1, 2]);
});

test("images without results have no plot, and an older service gives none", async () => {
  const without = serviceWith([]);
  assert.deepEqual(await askResults(without, "jf", "spots", null), { choices: [], plot: null, hitRate: null });
  const failing = (code: string) => ({
    ...without,
    results: () => Promise.reject(new ApiProblem({ code, detail: "", status: 404 })),
  });
  assert.equal((await askResults(failing("not_found"), "jf", null, null)).choices, null);
  await assert.rejects(askResults(failing("unknown_detector"), "jf", null, null));
});

test("a run that is going is asked for again", () => {
  assert.equal(momentOf(null), null);
  const moment = momentOf({ state: "running", run: 4 } as DetectorStatus) as string;
  assert.ok(isGoing(moment));
  assert.ok(!isGoing(momentOf({ state: "idle", run: 4 } as DetectorStatus) as string));
});
