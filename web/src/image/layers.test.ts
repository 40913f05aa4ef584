import assert from "node:assert";
import { test } from "node:test";
import { RingCache, spotsOf } from "./layers";

test("spots lie in the middle of their pixels", () => {
  const results = { peakXPosRaw: [0, 10.25, null], peakYPosRaw: [0, 20, 3], is_indexed: 1 };
  const { points, isIndexed } = spotsOf(results);
  assert.deepEqual(points, [
    { x: 0.5, y: 0.5 },
    { x: 10.75, y: 20.5 },
  ]);
  assert.equal(isIndexed, true);
});

test("no spots without results, or with half of them", () => {
  assert.deepEqual(spotsOf(null), { points: [], isIndexed: false });
  assert.deepEqual(spotsOf({ peakXPosRaw: [1, 2], is_indexed: 0 }).points, []);
});

test("rings are kept as long as the geometry stays", () => {
  const cache = new RingCache();
  const size = { width: 1000, height: 1000 };
  const geometry = (z: number) => ({
    origin_mm: [40, 40, z] as [number, number, number],
    fast_mm: [-0.1, 0, 0] as [number, number, number],
    slow_mm: [0, -0.1, 0] as [number, number, number],
    wavelength_angstrom: 1,
  });
  const ring = cache.ring(geometry(100), size, 3);
  assert.equal(cache.ring(geometry(100), size, 3), ring);
  assert.notEqual(cache.ring(geometry(120), size, 3), ring);
  assert.ok(cache.automatic(geometry(100), size).length >= 3);
});
