import assert from "node:assert/strict";
import { test } from "node:test";
import { linesFor } from "./lines";

test("each program gets the name as it needs it", () => {
  const [dials, xds, crystfel] = linesFor("/data/lyso/run03_master.h5", 500);
  assert.match(dials?.text ?? "", /^dials\.import \/data\/lyso\/run03_master\.h5\n/);
  assert.match(xds?.text ?? "", /FRAMES=\/data\/lyso\/run03_\?{6}\.h5\nDATA_RANGE=1 500/);
  assert.match(crystfel?.text ?? "", /-i run03\.lst -g run03\.geom -o run03\.stream/);
});

test("names that a shell would divide are quoted, and other layouts have no template for XDS", () => {
  const lines = linesFor("/data/my run.h5", 5);
  assert.deepEqual(
    lines.map(({ program }) => program),
    ["DIALS", "CrystFEL"],
  );
  assert.match(lines[0]?.text ?? "", /'\/data\/my run\.h5'/);
});
