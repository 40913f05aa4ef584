// Where a pixel is in space, and which pixels a cone about the beam meets. Positions count from the outer corner of the
// first pixel, so its centre is (0.5, 0.5); x is along the fast axis. The sample is at the origin, the beam along z.

export type Vector = [x: number, y: number, z: number];
export interface Point {
  x: number;
  y: number;
}

/** As in docs/live.md. */
export interface Geometry {
  origin_mm: Vector;
  fast_mm: Vector;
  slow_mm: Vector;
  wavelength_angstrom: number | null;
}

/** What the scattering to a point means. */
export interface Scattering {
  twoThetaDeg: number;
  /** Null if the wavelength is not known, or for the beam itself. */
  dAngstrom: number | null;
  /** Per angstrom, 4 pi sin(theta) / wavelength. */
  qPerAngstrom: number | null;
}

const dot = (a: Vector, b: Vector) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a: Vector, b: Vector): Vector => [
  a[1] * b[2] - a[2] * b[1],
  a[2] * b[0] - a[0] * b[2],
  a[0] * b[1] - a[1] * b[0],
];

function place(geometry: Geometry, { x, y }: Point): Vector {
  const { origin_mm: o, fast_mm: f, slow_mm: s } = geometry;
  return [o[0] + x * f[0] + y * s[0], o[1] + x * f[1] + y * s[1], o[2] + x * f[2] + y * s[2]];
}

/** Angle between the beam and the way to this point, radian. */
export function twoTheta(geometry: Geometry, point: Point): number {
  const [x, y, z] = place(geometry, point);
  return Math.atan2(Math.hypot(x, y), z);
}

export function scattering(geometry: Geometry, point: Point): Scattering {
  const angle = twoTheta(geometry, point);
  const wavelength = geometry.wavelength_angstrom;
  const sine = Math.sin(angle / 2);
  return {
    twoThetaDeg: (angle * 180) / Math.PI,
    dAngstrom: wavelength && sine > 0 ? wavelength / (2 * sine) : null,
    qPerAngstrom: wavelength ? (4 * Math.PI * sine) / wavelength : null,
  };
}

/** The angle of a spacing, radian; null if the wavelength is not known or no angle has it. */
export function twoThetaOfSpacing(geometry: Geometry, dAngstrom: number): number | null {
  const sine = (geometry.wavelength_angstrom ?? Number.NaN) / (2 * dAngstrom);
  return sine > 0 && sine <= 1 ? 2 * Math.asin(sine) : null;
}

/** Finds where rays from the sample meet the plane of the detector. */
export class Plane {
  private readonly normal: Vector;
  private readonly distance: number;

  constructor(private readonly geometry: Geometry) {
    this.normal = cross(geometry.fast_mm, geometry.slow_mm);
    this.distance = dot(this.normal, geometry.origin_mm);
  }

  /** Null if the ray goes away from the plane or along it. */
  meet(ray: Vector): Point | null {
    const along = this.distance / dot(this.normal, ray);
    if (!(along > 0 && Number.isFinite(along))) return null;
    const { origin_mm: o, fast_mm: f, slow_mm: s } = this.geometry;
    const from: Vector = [along * ray[0] - o[0], along * ray[1] - o[1], along * ray[2] - o[2]];
    // The axes need not be at right angles.
    const [ff, fs, ss] = [dot(f, f), dot(f, s), dot(s, s)];
    const [pf, ps] = [dot(from, f), dot(from, s)];
    const area = ff * ss - fs * fs;
    return { x: (pf * ss - ps * fs) / area, y: (ps * ff - pf * fs) / area };
  }

  /** The point of a cone in this direction about the beam. */
  onCone(angle: number, azimuth: number): Point | null {
    const sine = Math.sin(angle);
    return this.meet([sine * Math.cos(azimuth), sine * Math.sin(azimuth), Math.cos(angle)]);
  }
}

/** Where the beam meets the detector; null if it does not. */
export function beamCentre(geometry: Geometry): Point | null {
  return new Plane(geometry).meet([0, 0, 1]);
}

interface Size {
  width: number;
  height: number;
}

const STEPS = 720;

function isNear(a: Point, b: Point, size: Size): boolean {
  const [left, right] = a.x < b.x ? [a.x, b.x] : [b.x, a.x];
  const [top, bottom] = a.y < b.y ? [a.y, b.y] : [b.y, a.y];
  return right >= 0 && left <= size.width && bottom >= 0 && top <= size.height;
}

/** The lines in which a cone meets an image of this size. On a tilted detector they are ellipses, or open curves. */
export function ringOfAngle(geometry: Geometry, angle: number, size: Size): Point[][] {
  const plane = new Plane(geometry);
  const lines: Point[][] = [];
  let line: Point[] | null = null;
  let last: Point | null = plane.onCone(angle, 0);
  for (let step = 1; step <= STEPS; step++) {
    const next = plane.onCone(angle, (2 * Math.PI * step) / STEPS);
    if (last && next && isNear(last, next, size)) {
      if (!line) {
        line = [last];
        lines.push(line);
      }
      line.push(next);
    } else {
      line = null;
    }
    last = next;
  }
  return lines;
}

/** As before, for a spacing; empty if no angle has it. */
export function ringOfSpacing(geometry: Geometry, dAngstrom: number, size: Size): Point[][] {
  const angle = twoThetaOfSpacing(geometry, dAngstrom);
  return angle === null ? [] : ringOfAngle(geometry, angle, size);
}

/** Spacings of hexagonal ice, angstrom. */
export const ICE_ANGSTROM = [3.897, 3.669, 3.441, 2.671, 2.249, 2.072, 1.948, 1.918, 1.883, 1.721];

const ROUND_SPACINGS = [100, 50, 30, 20, 15, 10, 8, 6, 5, 4, 3.5, 3, 2.5, 2.2, 2, 1.8, 1.6, 1.4, 1.2, 1, 0.8, 0.6];

/** The finest spacing at the corners of the image, angstrom; null if it is not known. */
export function finestSpacing(geometry: Geometry, size: Size): number | null {
  const corners = [
    { x: 0, y: 0 },
    { x: size.width, y: 0 },
    { x: 0, y: size.height },
    { x: size.width, y: size.height },
  ];
  const spacings = corners.map((corner) => scattering(geometry, corner).dAngstrom ?? Number.POSITIVE_INFINITY);
  const finest = Math.min(...spacings);
  return Number.isFinite(finest) ? finest : null;
}

/** Up to `most` round spacings with rings that are well apart on this image. */
export function automaticSpacings(geometry: Geometry, size: Size, most = 5): number[] {
  const finest = finestSpacing(geometry, size);
  const furthest = finest === null ? null : twoThetaOfSpacing(geometry, finest);
  if (finest === null || furthest === null) return [];
  const chosen: number[] = [];
  let last = 0;
  for (const spacing of ROUND_SPACINGS) {
    const angle = twoThetaOfSpacing(geometry, spacing);
    if (angle === null || spacing < finest || angle - last < furthest / (most + 1)) continue;
    chosen.push(spacing);
    last = angle;
  }
  return chosen;
}
