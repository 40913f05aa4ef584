// What lies above the image: spots, rings, the beam. Drawn in CSS pixels.

import type { Results } from "./frame";
import { automaticSpacings, beamCentre, type Geometry, ICE_ANGSTROM, type Point, ringOfSpacing } from "./geometry";
import { Labels, strokeTwice } from "./labels";
import { drawMask, drawModules, drawRegions, type Outlined } from "./outlines";
import { type Size, toScreen } from "./view";
import type { Layers } from "./viewer";

const RING = "#5ab0ff";
const ICE = "#3fd0c9";
const FOLLOWING = "#ffb000";
const BEAM = "#ff5a5a";
const INDEXED = "#2fd05f";
const NOT_INDEXED = "#ff9a1f";

export interface Overlaid extends Outlined {
  layers: Layers;
  ringAngstrom: number | null;
  /** Whether the drawn mask is marked. */
  marksSpecial: boolean;
}

interface Ring {
  spacing: number;
  lines: Point[][];
}

/** Rings are computed when the geometry changes, not for each picture. */
export class RingCache {
  private key = "";
  private readonly rings = new Map<number, Ring>();
  private chosen: number[] = [];

  automatic(geometry: Geometry, size: Size): Ring[] {
    this.renew(geometry, size);
    return this.chosen.map((spacing) => this.ring(geometry, size, spacing));
  }

  ring(geometry: Geometry, size: Size, spacing: number): Ring {
    this.renew(geometry, size);
    const known = this.rings.get(spacing);
    if (known) return known;
    const ring = { spacing, lines: ringOfSpacing(geometry, spacing, size) };
    // The ring of the slider has many spacings, of which none comes back.
    if (this.rings.size > 64) this.rings.clear();
    this.rings.set(spacing, ring);
    return ring;
  }

  private renew(geometry: Geometry, size: Size): void {
    const key = JSON.stringify([geometry, size.width, size.height]);
    if (key === this.key) return;
    this.key = key;
    this.rings.clear();
    this.chosen = automaticSpacings(geometry, size);
  }
}

interface RingStyle {
  colour: string;
  width: number;
}

function drawRing(context: CanvasRenderingContext2D, ring: Ring, on: Overlaid, labels: Labels, style: RingStyle): void {
  const points: Point[] = [];
  context.beginPath();
  for (const line of ring.lines) {
    for (const [n, point] of line.entries()) {
      const at = toScreen(on.view, point);
      if (n % 4 === 0) points.push(at);
      if (n === 0) context.moveTo(at.x, at.y);
      else context.lineTo(at.x, at.y);
    }
  }
  strokeTwice(context, style.colour, style.width);
  context.setLineDash([]);
  labels.write(`${Number(ring.spacing.toFixed(3))} Å`, points, style.colour);
}

function drawRings(context: CanvasRenderingContext2D, on: Overlaid, cache: RingCache): void {
  const { geometry, columns, rows } = on.header;
  if (!geometry) return;
  const size = { width: columns, height: rows };
  const labels = new Labels(context, on.canvas);
  if (on.ringAngstrom !== null) {
    const style = { colour: FOLLOWING, width: 2.5 };
    drawRing(context, cache.ring(geometry, size, on.ringAngstrom), on, labels, style);
  }
  if (on.layers.rings) {
    const style = { colour: RING, width: 1.5 };
    for (const ring of cache.automatic(geometry, size)) drawRing(context, ring, on, labels, style);
  }
  if (on.layers.ice) {
    for (const spacing of ICE_ANGSTROM) {
      context.setLineDash([6, 4]);
      drawRing(context, cache.ring(geometry, size, spacing), on, labels, { colour: ICE, width: 1.5 });
    }
  }
}

function drawBeam(context: CanvasRenderingContext2D, on: Overlaid): void {
  const centre = on.header.geometry && beamCentre(on.header.geometry);
  if (!centre) return;
  const { x, y } = toScreen(on.view, centre);
  context.beginPath();
  for (const [dx, dy] of [
    [1, 0],
    [-1, 0],
    [0, 1],
    [0, -1],
  ] as const) {
    context.moveTo(x + 4 * dx, y + 4 * dy);
    context.lineTo(x + 14 * dx, y + 14 * dy);
  }
  strokeTwice(context, BEAM, 2);
}

export interface Spots {
  points: Point[];
  isIndexed: boolean;
}

/** Spots of an image; positions of results count from the centre of the first pixel. */
export function spotsOf(results: Results | null): Spots {
  const [x, y] = [results?.peakXPosRaw, results?.peakYPosRaw];
  const points: Point[] = [];
  if (Array.isArray(x) && Array.isArray(y)) {
    for (let n = 0; n < Math.min(x.length, y.length); n++) {
      const [column, row] = [x[n], y[n]];
      if (typeof column === "number" && typeof row === "number") points.push({ x: column + 0.5, y: row + 0.5 });
    }
  }
  return { points, isIndexed: results?.is_indexed === 1 };
}

function drawSpots(context: CanvasRenderingContext2D, on: Overlaid): void {
  const { points, isIndexed } = spotsOf(on.header.results);
  // Small where the image is small: else the markers of many spots hide them.
  const radius = Math.max(3.5, 3 * on.view.scale);
  context.beginPath();
  for (const point of points) {
    const { x, y } = toScreen(on.view, point);
    if (x < -radius || y < -radius || x > on.canvas.width + radius || y > on.canvas.height + radius) continue;
    if (isIndexed) {
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 2 * Math.PI);
    } else {
      context.rect(x - radius, y - radius, 2 * radius, 2 * radius);
    }
  }
  strokeTwice(context, isIndexed ? INDEXED : NOT_INDEXED, radius < 6 ? 1 : 1.5);
}

export function drawLayers(context: CanvasRenderingContext2D, on: Overlaid, cache: RingCache): void {
  context.lineJoin = "round";
  if (on.layers.modules) drawModules(context, on);
  if (on.marksSpecial) drawMask(context, on);
  if (on.layers.spots) drawSpots(context, on);
  // Above the spots, as these have names.
  drawRings(context, on, cache);
  if (on.layers.regions) drawRegions(context, on);
  if (on.layers.beam) drawBeam(context, on);
}
