// The outlines of shapes: the drawn mask and the regions.

import { centreOf, type Ring, type Sector, type Shape } from "../shapes/model";
import type { Point } from "./geometry";
import { rowScaleOf, toScreen, type View } from "./view";

interface Path {
  context: CanvasRenderingContext2D;
  view: View;
  /** Where the beam meets the image; null if that is not known. */
  beam: Point | null;
}

/** Where rows are stretched, circles are, too. */
function circle({ context, view }: Path, { x, y }: Point, radius: number): void {
  context.moveTo(x + radius, y);
  context.ellipse(x, y, radius, (radius * rowScaleOf(view)) / view.scale, 0, 0, 2 * Math.PI);
}

function polygon(context: CanvasRenderingContext2D, points: readonly Point[]): Point | null {
  for (const [n, { x, y }] of points.entries()) {
    if (n === 0) context.moveTo(x, y);
    else context.lineTo(x, y);
  }
  context.closePath();
  return points.reduce<Point | null>(
    (best, point) => (best === null || point.x + point.y < best.x + best.y ? point : best),
    null,
  );
}

const radians = (degrees: number) => (degrees * Math.PI) / 180;

/** Without its own centre, and without that of the beam, there is nothing to draw. */
function round(path: Path, shape: Ring | Sector): Point | null {
  const { context, view, beam } = path;
  const place = centreOf(shape, beam);
  if (!place) return null;
  const centre = toScreen(view, place);
  const [inner, outer] = [shape.inner_radius_px * view.scale, shape.radius_px * view.scale];
  if (shape.form === "ring") {
    circle(path, centre, outer);
    if (inner > 0) circle(path, centre, inner);
    return { x: centre.x - outer * Math.SQRT1_2, y: centre.y - outer * Math.SQRT1_2 };
  }
  const [from, to] = [radians(shape.from_deg), radians(shape.from_deg + shape.width_deg)];
  const stretch = rowScaleOf(view) / view.scale;
  const begin = { x: centre.x + outer * Math.cos(from), y: centre.y + stretch * outer * Math.sin(from) };
  context.moveTo(begin.x, begin.y);
  context.ellipse(centre.x, centre.y, outer, stretch * outer, 0, from, to);
  context.ellipse(centre.x, centre.y, inner, stretch * inner, 0, to, from, true);
  context.closePath();
  return begin;
}

/** The outline on the screen, added to the path of the context. Gives the place for a name, at its upper left; null if
 * nothing was drawn. */
export function outline(path: Path, shape: Shape): Point | null {
  const { context, view } = path;
  switch (shape.form) {
    case "rectangle": {
      const corner = toScreen(view, { x: shape.column, y: shape.row });
      context.rect(corner.x, corner.y, shape.columns * view.scale, shape.rows * rowScaleOf(view));
      return corner;
    }
    case "circle": {
      const centre = toScreen(view, { x: shape.x_px, y: shape.y_px });
      const radius = shape.radius_px * view.scale;
      circle(path, centre, radius);
      return { x: centre.x - radius * Math.SQRT1_2, y: centre.y - radius * Math.SQRT1_2 };
    }
    case "polygon":
      return polygon(
        context,
        shape.points.map(([x, y]) => toScreen(view, { x, y })),
      );
    case "ring":
    case "sector":
      return round(path, shape);
    default:
      // Newer services may have more forms than this page knows.
      return null;
  }
}
