import assert from "node:assert/strict";
import { test } from "node:test";
import type { DryRun } from "../../api/client";
import { needsOf, remarksOf } from "./dryRun";
import { EMPTY_FORM, type Form } from "./fields";
import { checkForm, whyNotPrefix } from "./form";
import { loadPresets, savePresets } from "./presets";
import { curlText, pythonText, tomlText } from "./snippets";

const form = (fields: Partial<Form>): Form => ({ ...EMPTY_FORM, ...fields });

test("an empty form asks for nothing but what is configured", () => {
  assert.deepEqual(checkForm(EMPTY_FORM), { request: {}, wrong: {} });
});

test("a filled form becomes the request", () => {
  const { request, wrong } = checkForm(
    form({
      images: "50 000",
      prefix: " lyso/run03 ",
      write: "no",
      metadata: { energy_kev: "12.4", sample_name: "lyso" },
    }),
  );
  assert.deepEqual(wrong, {});
  assert.deepEqual(request, {
    images: 50_000,
    prefix: "lyso/run03",
    write: false,
    metadata: { sample_name: "lyso", energy_kev: 12.4 },
  });
  assert.deepEqual(checkForm(form({ images: "7", isUntilStopped: true })).request, { images: 0 });
});

test("what is wrong is said at its field", () => {
  const metadata = { energy_kev: "12400", detector_distance_mm: "15 cm" };
  const { request, wrong } = checkForm(form({ images: "1.5", prefix: "../up", metadata }));
  assert.deepEqual(Object.keys(wrong), ["images", "prefix", "energy_kev", "detector_distance_mm"]);
  assert.deepEqual(request, {});
  for (const prefix of ["a//b", "./a", ".a", "a/.b", "_master.h5", "a\nb", "x".repeat(201)]) {
    assert.notEqual(whyNotPrefix(prefix), null, prefix);
  }
  for (const prefix of ["run", "lyso/run03", "/data/run", "run_master.h5", "Probe 1 ü"]) {
    assert.equal(whyNotPrefix(prefix), null, prefix);
  }
});

const target = { base: "http://daq:8090/", verb: "arm", detector: null, hasToken: false } as const;

test("the texts to copy say the same run, and never the token", () => {
  const request = { images: 10, prefix: "it's", write: true, metadata: { energy_kev: 12.4, sample_name: 'a "b"' } };
  const curl = curlText(request, { ...target, hasToken: true, detector: "jf 1" });
  assert.match(curl, /'http:\/\/daq:8090\/api\/v1\/arm\?detector=jf\+1'/);
  assert.match(curl, /\$KONKORDIA_TOKEN/);
  assert.ok(curl.includes(`"prefix":"it'\\''s"`));
  const python = pythonText(request, target);
  assert.match(python, /"write": True/);
  assert.doesNotMatch(python, /import os/);
  assert.equal(
    tomlText(request),
    '[run]\nimages = 10\n\n[output]\nprefix = "it\'s"\nwrite = true\nsample_name = "a \\"b\\""\n\n[detector]\nenergy_kev = 12.4\n',
  );
  assert.match(tomlText({ images: 0 }), /until stopped/);
});

const needs = (fields: Partial<DryRun["needs"]>, problems: DryRun["problems"] = []): DryRun =>
  ({ ok: problems.length === 0, problems, needs: fields }) as unknown as DryRun;

test("what the service finds wrong stands at its field, or above the buttons", () => {
  const problem = (field: string, hint = "do it") => ({ field, detail: `${field} is wrong`, hint });
  const found = needs({}, [
    problem("prefix"),
    problem("metadata.energy_kev", ""),
    problem("disk"),
    problem("metadata.x"),
  ]);
  assert.deepEqual(remarksOf(found, new Set(["prefix", "energy_kev"])), {
    fields: { prefix: "prefix is wrong. Do it", energy_kev: "metadata.energy_kev is wrong" },
    others: ["disk is wrong. Do it", "metadata.x is wrong. Do it"],
  });
  assert.deepEqual(remarksOf(null, new Set()), { fields: {}, others: [] });
});

test("needs are shown as far as they are known, and none is invented", () => {
  const texts = (answer: DryRun) => needsOf(answer).map(({ value, note }) => (note ? `${value} (${note})` : value));
  const known = { images: 1000, duration_s: 10, rate_hz: 100, memory_bytes: 4e9, disk_free_bytes: 1e12 };
  assert.deepEqual(texts(needs({ ...known, file_bytes: 2e9, file_bytes_from: "uncompressed", fits: true })), [
    "1\u202f000",
    "00:10 (at 100.0 Hz)",
    "2.0 GB (at most)",
    "1.0 TB (enough)",
    "4.0 GB",
  ]);
  assert.deepEqual(texts(needs({})), ["– (no number is planned)", "–", "–", "–", "–"]);
  const small = needsOf(needs({ ...known, file_bytes: 2e12, file_bytes_from: "last_run", fits: false }));
  assert.deepEqual(
    small.filter(({ isBad }) => isBad).map(({ name }) => name),
    ["disk free"],
  );
  assert.equal(texts(needs({ ...known, file_bytes: 0, fits: true }))[2], "– (none are written)");
});

test("presets survive, and damaged ones are left out", () => {
  const kept = new Map<string, string>();
  const store = { getItem: (key: string) => kept.get(key) ?? null, setItem: (k: string, v: string) => kept.set(k, v) };
  const lyso = form({ images: "5", metadata: { energy_kev: "9" } });
  savePresets(store, { lyso });
  assert.deepEqual(loadPresets(store), { lyso });
  kept.set("konkordia.presets", '{"odd": {"images": 5, "write": "perhaps", "metadata": null}}');
  assert.deepEqual(loadPresets(store), { odd: EMPTY_FORM });
  kept.set("konkordia.presets", "{");
  assert.deepEqual(loadPresets(store), {});
});
