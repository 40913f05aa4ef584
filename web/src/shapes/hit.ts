// Which shape is under the pointer, and how large shapes are.

import type { Point } from "../image/geometry";
import { centreOf, type DrawnShapes, type ListName, type Place, type Shape, shapeAt } from "./model";

export interface Bounds {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The smallest rectangle around a shape; that of a sector is that of its circle. Null if nobody knows where it is. */
export function boundsOf(shape: Shape, beam: Point | null): Bounds | null {
  switch (shape.form) {
    case "rectangle": {
      const { column, row, columns, rows } = shape;
      return { left: column, top: row, right: column + columns, bottom: row + rows };
    }
    case "polygon": {
      const [x, y] = [shape.points.map((point) => point[0]), shape.points.map((point) => point[1])];
      return { left: Math.min(...x), top: Math.min(...y), right: Math.max(...x), bottom: Math.max(...y) };
    }
    case "circle":
    case "ring":
    case "sector": {
      const centre = centreOf(shape, beam);
      const radius = shape.radius_px;
      return (
        centre && {
          left: centre.x - radius,
          top: centre.y - radius,
          right: centre.x + radius,
          bottom: centre.y + radius,
        }
      );
    }
    default:
      return null;
  }
}

/** From a point to the line between two others. */
function distanceToEdge({ x, y }: Point, [x0, y0]: [number, number], [x1, y1]: [number, number]): number {
  const [dx, dy] = [x1 - x0, y1 - y0];
  const length = dx * dx + dy * dy;
  const along = length === 0 ? 0 : Math.min(1, Math.max(0, ((x - x0) * dx + (y - y0) * dy) / length));
  return Math.hypot(x - x0 - along * dx, y - y0 - along * dy);
}

/** The edges that it crosses are odd in number, as the service counts them. */
function isInPolygon(points: readonly [number, number][], point: Point, within: number): boolean {
  let isInside = false;
  for (const [n, end] of points.entries()) {
    const begin = points.at(n - 1) ?? end;
    if (distanceToEdge(point, begin, end) <= within) return true;
    const isCrossed = begin[1] <= point.y !== end[1] <= point.y;
    const at = begin[0] + ((point.y - begin[1]) / (end[1] - begin[1])) * (end[0] - begin[0]);
    if (isCrossed && point.x < at) isInside = !isInside;
  }
  return isInside;
}

/** Whether a point is in a shape, or as near as `within` to it. */
export function contains(shape: Shape, point: Point, within: number, beam: Point | null): boolean {
  switch (shape.form) {
    case "rectangle": {
      const { column, row, columns, rows } = shape;
      const isBetween = (value: number, from: number, size: number) =>
        value >= from - within && value <= from + size + within;
      return isBetween(point.x, column, columns) && isBetween(point.y, row, rows);
    }
    case "polygon":
      return isInPolygon(shape.points, point, within);
    case "circle":
    case "ring":
    case "sector": {
      const centre = centreOf(shape, beam);
      if (!centre) return false;
      const [dx, dy] = [point.x - centre.x, point.y - centre.y];
      const distance = Math.hypot(dx, dy);
      if (distance > shape.radius_px + within) return false;
      if (shape.form === "circle") return true;
      if (distance < shape.inner_radius_px - within) return false;
      const angle = (Math.atan2(dy, dx) * 180) / Math.PI - (shape.form === "sector" ? shape.from_deg : 0);
      return shape.form === "ring" || angle - 360 * Math.floor(angle / 360) <= shape.width_deg;
    }
    default:
      return false;
  }
}

export function allPlaces({ mask, regions }: DrawnShapes): Place[] {
  const of = (list: ListName, shapes: readonly unknown[]) => shapes.map((_, index) => ({ list, index }));
  return [...of("mask", mask), ...of("regions", regions)];
}

/** The shape at a point: the smallest of several, as a large one would hide it; those of one list come first. */
export function hitAt(
  shapes: DrawnShapes,
  first: ListName,
  point: Point,
  within: number,
  beam: Point | null,
): Place | null {
  let best: { place: Place; rank: number } | null = null;
  for (const place of allPlaces(shapes)) {
    const shape = shapeAt(shapes, place);
    const bounds = shape && boundsOf(shape, beam);
    if (!shape || !bounds || !contains(shape, point, within, beam)) continue;
    const area = (bounds.right - bounds.left) * (bounds.bottom - bounds.top);
    const rank = place.list === first ? area : area + 1e15;
    if (best === null || rank <= best.rank) best = { place, rank };
  }
  return best?.place ?? null;
}
