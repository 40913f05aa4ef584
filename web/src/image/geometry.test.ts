import assert from "node:assert";
import { test } from "node:test";
import {
  automaticSpacings,
  beamCentre,
  type Geometry,
  ICE_ANGSTROM,
  type Point,
  ringOfAngle,
  ringOfSpacing,
  scattering,
  twoTheta,
  twoThetaOfSpacing,
  type Vector,
} from "./geometry";

const SIZE = { width: 2000, height: 1000 };

/** A detector of 0.1 mm at 100 mm, turned about the vertical axis; the beam would be at (800, 400) without the turn. */
function detector(turnDeg: number, slant = 0): Geometry {
  const [cosine, sine] = [Math.cos((turnDeg * Math.PI) / 180), Math.sin((turnDeg * Math.PI) / 180)];
  const turned = ([x, y, z]: Vector): Vector => [x * cosine + z * sine, y, -x * sine + z * cosine];
  return {
    origin_mm: turned([80, 40, 100]),
    fast_mm: turned([-0.1, 0, 0]),
    slow_mm: turned([slant, -0.1, 0]),
    wavelength_angstrom: 1,
  };
}

/** The ring without cones: walks from `from` in a direction until the angle is right. */
function walked(geometry: Geometry, from: Point, direction: number, angle: number): number {
  let [near, far] = [0, 4000];
  for (let n = 0; n < 100; n++) {
    const middle = (near + far) / 2;
    const point = { x: from.x + middle * Math.cos(direction), y: from.y + middle * Math.sin(direction) };
    if (twoTheta(geometry, point) < angle) near = middle;
    else far = middle;
  }
  return near;
}

test("a detector across the beam has circles", () => {
  const geometry = detector(0);
  const centre = beamCentre(geometry) as Point;
  assert.ok(Math.hypot(centre.x - 800, centre.y - 400) < 1e-9);
  const angle = twoThetaOfSpacing(geometry, 3) as number;
  const [line, ...others] = ringOfSpacing(geometry, 3, SIZE);
  assert.ok(line && others.length === 0 && line.length === 721);
  for (const point of line) {
    assert.ok(Math.abs(Math.hypot(point.x - 800, point.y - 400) - 1000 * Math.tan(angle)) < 1e-6);
  }
});

test("rings of tilted and slanted detectors are where the angle is", () => {
  for (const geometry of [detector(25), detector(-40), detector(10, 0.02)]) {
    const centre = beamCentre(geometry) as Point;
    for (const spacing of [8, 3, 1.7]) {
      const angle = twoThetaOfSpacing(geometry, spacing) as number;
      for (const point of ringOfSpacing(geometry, spacing, { width: 3000, height: 3000 }).flat()) {
        const direction = Math.atan2(point.y - centre.y, point.x - centre.x);
        const distance = Math.hypot(point.x - centre.x, point.y - centre.y);
        if (distance > 3900) continue;
        assert.ok(Math.abs(walked(geometry, centre, direction, angle) - distance) < 1e-6, `${spacing} ${direction}`);
      }
    }
  }
});

test("a tilted ring is no circle", () => {
  const geometry = detector(30);
  const centre = beamCentre(geometry) as Point;
  const line = ringOfSpacing(geometry, 3, { width: 9000, height: 9000 }).flat();
  const radii = line.map((point) => Math.hypot(point.x - centre.x, point.y - centre.y));
  assert.ok(Math.max(...radii) / Math.min(...radii) > 1.2);
});

test("cones that leave the plane give open lines", () => {
  const geometry = detector(80);
  const lines = ringOfAngle(geometry, (70 * Math.PI) / 180, { width: 2000, height: 2000 });
  assert.ok(lines.length > 0);
  for (const point of lines.flat()) {
    assert.ok(Number.isFinite(point.x) && Number.isFinite(point.y));
    assert.ok(Math.abs(twoTheta(geometry, point) - (70 * Math.PI) / 180) < 1e-9);
  }
  const [first, last] = [lines[0]?.[0] as Point, lines[0]?.at(-1) as Point];
  assert.ok(Math.hypot(first.x - last.x, first.y - last.y) > 1);
});

test("no beam on a detector that the beam does not meet", () => {
  assert.equal(beamCentre(detector(100)), null);
  assert.equal(beamCentre({ ...detector(0), origin_mm: [80, 40, -100] }), null);
});

test("rings that no angle has, or without a wavelength", () => {
  assert.deepEqual(ringOfSpacing(detector(0), 0.4, SIZE), []);
  assert.deepEqual(ringOfSpacing({ ...detector(0), wavelength_angstrom: null }, 3, SIZE), []);
  assert.deepEqual(automaticSpacings({ ...detector(0), wavelength_angstrom: null }, SIZE), []);
});

test("spacing and q of a point agree", () => {
  const { dAngstrom, qPerAngstrom, twoThetaDeg } = scattering(detector(20), { x: 100.5, y: 700.5 });
  assert.ok(dAngstrom && qPerAngstrom && twoThetaDeg > 0);
  assert.ok(Math.abs(dAngstrom * qPerAngstrom - 2 * Math.PI) < 1e-12);
  assert.equal(scattering(detector(0), { x: 800, y: 400 }).dAngstrom, null);
});

test("automatic rings are few and on the image", () => {
  const spacings = automaticSpacings(detector(0), SIZE);
  assert.ok(spacings.length >= 3 && spacings.length <= 6, String(spacings));
  for (const spacing of spacings) assert.ok(ringOfSpacing(detector(0), spacing, SIZE).length > 0);
  assert.equal(ICE_ANGSTROM.length, 10);
});
