import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiProblem, type ResultPlot } from "../../api/client";
import type { DetectorStatus } from "../../live/types";
import { askResults } from "./ask";
import type { AxisKind } from "./history";
import { isGoing, momentOf } from "./renew";
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
  };
}

const of = (result: string | null, axis: AxisKind = "image") => ({ result, axis });

test("first the names, then what was chosen, and later only that", async () => {
  const service = serviceWith(names("is_hit", "spots"));
  const first = await askResults(service, "jf", of(null), null);
  assert.equal(first.plot?.result, "spots");
  await askResults(service, "jf", of("is_hit"), first);
  assert.deepEqual(service.asked, ["jf null", "jf spots", "jf is_hit"]);
});

test("the rate of hits is asked for elsewhere", async () => {
  const service = serviceWith(names("is_hit"));
  const answer = await askResults(service, "jf", of(HIT_RATE), null);
  assert.deepEqual(service.asked, ["jf null"]);
  assert.deepEqual([answer.plot, answer.choices?.length], [null, 2]);
});

test("what a plot goes along is asked for where images have it", async () => {
  const service = serviceWith(names("spots", "angle_deg", "raster_column"));
  const answer = await askResults(service, "jf", of("spots", "angle"), null);
  assert.deepEqual(service.asked, ["jf null", "jf angle_deg", "jf spots"]);
  assert.equal(answer.along?.result, "angle_deg");
  assert.equal((await askResults(service, "jf", of("spots", "raster"), null)).along?.result, "raster_column");
  assert.equal((await askResults(service, "jf", of("spots", "time"), null)).along, null);
  assert.equal((await askResults(serviceWith(names("spots")), "jf", of("spots", "angle"), null)).along, null);
});

test("images without results have no plot, and an older service gives none", async () => {
  const without = serviceWith([]);
  assert.deepEqual(await askResults(without, "jf", of("spots"), null), { choices: [], plot: null, along: null });
  const failing = (code: string) => ({
    ...without,
    results: () => Promise.reject(new ApiProblem({ code, detail: "", status: 404 })),
  });
  assert.equal((await askResults(failing("not_found"), "jf", of(null), null)).choices, null);
  await assert.rejects(askResults(failing("unknown_detector"), "jf", of(null), null));
});

test("a run that is going is asked for again", () => {
  assert.equal(momentOf(null), null);
  const moment = momentOf({ state: "running", run: 4 } as DetectorStatus) as string;
  assert.ok(isGoing(moment));
  assert.ok(!isGoing(momentOf({ state: "idle", run: 4 } as DetectorStatus) as string));
});
