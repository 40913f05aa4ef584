import assert from "node:assert";
import { test } from "node:test";
import { moduleAt, modulesOf } from "./modules";
import { kindText, Reasons } from "./reason";

const after = (ms: number) => new Promise((done) => setTimeout(done, ms));
const place = (column: number) => ({ detector: "jf", run: 1, column, row: 2 });

test("the service is asked when the pointer rests, and once for each pixel", async () => {
  const asked: number[] = [];
  const reasons = new Reasons(async ({ column }) => {
    asked.push(column);
    return [`reason ${column}`];
  });
  for (const column of [1, 2, 3]) reasons.look(place(column));
  assert.equal(reasons.shown.value, null);
  await after(200);
  assert.deepEqual([asked, reasons.shown.value], [[3], ["reason 3"]]);
  reasons.look(place(4));
  reasons.look(null);
  await after(200);
  assert.deepEqual([asked, reasons.shown.value], [[3], null]);
  reasons.look(place(3));
  assert.deepEqual(reasons.shown.value, ["reason 3"]);
  // Another run may have another mask.
  reasons.look({ ...place(3), run: 2 });
  assert.equal(reasons.shown.value, null);
  reasons.look(null);
});

test("an answer that comes late is not shown for another pixel, and a failure leaves the kind", async () => {
  const reasons = new Reasons(async ({ column }) => {
    await after(30);
    if (column === 7) throw new Error("no such path");
    return ["dead"];
  });
  reasons.look(place(1));
  await after(160);
  reasons.look(place(7));
  await after(250);
  assert.equal(reasons.shown.value, null);
  reasons.look(place(1));
  assert.deepEqual(reasons.shown.value, ["dead"]);
});

test("words say the kind and the reason", () => {
  const module = { index: 3, name: "m", column: 0, row: 0, columns: 4, rows: 2 };
  assert.equal(kindText("masked", null, module), "masked");
  assert.equal(kindText("masked", ["dead", "user"], null), "masked: dead, user");
  assert.equal(kindText("invalid", [], null), "not valid");
  assert.equal(kindText("missing", null, module), "missing: packets of module 3 were lost");
  assert.equal(kindText("missing", null, null), "missing");
  assert.equal(kindText("saturated", ["noisy"], module), "saturated");
});

test("a pixel is in a module, in a gap, or of an image of another size", () => {
  const modules = [0, 1].map((index) => ({ index, name: `m${index}`, column: 6 * index, row: 0, columns: 4, rows: 2 }));
  const map = { rows: 2, columns: 10, modules };
  assert.equal(moduleAt(modulesOf(map, { rows: 2, columns: 10 }), 9, 1)?.index, 1);
  assert.equal(moduleAt(modules, 4, 1), null);
  assert.deepEqual(modulesOf(map, { rows: 4, columns: 10 }), []);
  assert.deepEqual(modulesOf(null, { rows: 4, columns: 10 }), []);
});
