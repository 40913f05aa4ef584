import assert from "node:assert/strict";
import { test } from "node:test";
import { estimate } from "./estimate";
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

test("the estimate needs shape and number, and invents neither", () => {
  const configuration = { image_rows: 512, image_columns: 1024, dtype: "int16", images: null };
  assert.equal(estimate({}, configuration, []), null);
  assert.equal(estimate({ images: 0 }, configuration, []), null);
  assert.deepEqual(estimate({ images: 10, metadata: { frame_time_us: 1000 } }, configuration, []), {
    images: 10,
    bytesMax: 10_485_760,
    bytesLikely: null,
    seconds: 0.01,
  });
  assert.equal(estimate({ images: 10 }, { detector: "stream" }, [])?.bytesMax, null);
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
