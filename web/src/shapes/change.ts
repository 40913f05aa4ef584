// Shapes that are made, moved and resized by pointer and keys. Borders of rectangles lie between pixels; everything else
// on half pixels, which are corners or centres.

import type { Point } from "../image/geometry";
import { centreOf, type Form, type Rectangle, type Shape } from "./model";

const halves = (value: number) => Math.round(2 * value) / 2;

export type DraggedForm = "rectangle" | "circle";

/** The shape between two places: corners of a rectangle, centre and edge of a circle. */
export function dragged(form: DraggedForm, from: Point, to: Point): Shape {
  if (form === "circle") {
    const [x_px, y_px] = [halves(from.x), halves(from.y)];
    return { form, x_px, y_px, radius_px: Math.max(0.5, halves(Math.hypot(to.x - x_px, to.y - y_px))) };
  }
  const [left, right] = [Math.floor(Math.min(from.x, to.x)), Math.ceil(Math.max(from.x, to.x))];
  const [top, bottom] = [Math.floor(Math.min(from.y, to.y)), Math.ceil(Math.max(from.y, to.y))];
  return { form, column: left, row: top, columns: Math.max(1, right - left), rows: Math.max(1, bottom - top) };
}

export const corner = ({ x, y }: Point): [number, number] => [halves(x), halves(y)];

/** A shape to begin with, about a place and of half this size. */
export function startingShape(form: Form, { x, y }: Point, half: number, isAboutBeam: boolean): Shape {
  const size = Math.max(1, Math.round(half));
  const [column, row] = [Math.round(x) - size, Math.round(y) - size];
  const centre = isAboutBeam ? {} : { x_px: halves(x), y_px: halves(y) };
  switch (form) {
    case "rectangle":
      return { form, column, row, columns: 2 * size, rows: 2 * size };
    case "circle":
      return { form, x_px: halves(x), y_px: halves(y), radius_px: size };
    case "polygon":
      return {
        form,
        points: [
          [column, row + 2 * size],
          [column + size, row],
          [column + 2 * size, row + 2 * size],
        ],
      };
    case "ring":
      return { form, ...centre, inner_radius_px: size / 2, radius_px: size };
    case "sector":
      return { form, ...centre, inner_radius_px: size / 2, radius_px: size, from_deg: 0, width_deg: 90 };
  }
}

/** By whole pixels, so that it lies on the pixels as it did. About the beam, it is about that place from then on. */
export function moved(shape: Shape, dx: number, dy: number, beam: Point | null): Shape {
  const [right, down] = [Math.round(dx), Math.round(dy)];
  switch (shape.form) {
    case "rectangle":
      return { ...shape, column: shape.column + right, row: shape.row + down };
    case "polygon":
      return { ...shape, points: shape.points.map(([x, y]) => [x + right, y + down]) };
    case "circle":
    case "ring":
    case "sector": {
      const centre = centreOf(shape, beam);
      return centre && (right !== 0 || down !== 0)
        ? { ...shape, x_px: centre.x + right, y_px: centre.y + down }
        : shape;
    }
    default:
      return shape;
  }
}

/** A place by which a shape is resized. */
export interface Handle {
  at: Point;
  /** The shape with this handle at another place. */
  drag: (to: Point) => Shape;
}

const SIDES = [-1, 0, 1] as const;

/** One border of a rectangle goes along, the opposite one stays. */
function resized([from, size]: [number, number], side: -1 | 0 | 1, to: number): [number, number] {
  if (side === 0) return [from, size];
  if (side === 1) return [from, Math.max(1, Math.round(to) - from)];
  const begin = Math.min(Math.round(to), from + size - 1);
  return [begin, from + size - begin];
}

function rectangleHandles(shape: Rectangle): Handle[] {
  const { column, row, columns, rows } = shape;
  return SIDES.flatMap((right) =>
    SIDES.filter((down) => right !== 0 || down !== 0).map((down) => ({
      at: { x: column + ((right + 1) / 2) * columns, y: row + ((down + 1) / 2) * rows },
      drag: (to: Point): Shape => {
        const [newColumn, newColumns] = resized([column, columns], right, to.x);
        const [newRow, newRows] = resized([row, rows], down, to.y);
        return { ...shape, column: newColumn, row: newRow, columns: newColumns, rows: newRows };
      },
    })),
  );
}

export function handlesOf(shape: Shape): Handle[] {
  switch (shape.form) {
    case "rectangle":
      return rectangleHandles(shape);
    case "circle": {
      const { x_px: x, y_px: y, radius_px: radius } = shape;
      const places = [
        { x: x + radius, y },
        { x: x - radius, y },
        { x, y: y + radius },
        { x, y: y - radius },
      ];
      const drag = (to: Point): Shape => ({
        ...shape,
        radius_px: Math.max(0.5, halves(Math.hypot(to.x - x, to.y - y))),
      });
      return places.map((at) => ({ at, drag }));
    }
    case "polygon":
      return shape.points.map(([x, y], moving) => ({
        at: { x, y },
        drag: (to) => ({ ...shape, points: shape.points.map((point, n) => (n === moving ? corner(to) : point)) }),
      }));
    default:
      return [];
  }
}
