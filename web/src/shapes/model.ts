// Shapes over the image: the drawn mask and the regions, as the service keeps them (`/api/v1/shapes`). Places count from
// the outer corner of the first pixel; a pixel belongs to a shape if its centre is in it.

import type { components } from "../api/schema";
import type { Point } from "../image/geometry";

type Schemas = components["schemas"];
type Of<Name extends string> = Extract<Schemas["DrawnShape"], { form: Name }>;

export type Rectangle = Of<"rectangle">;
export type Circle = Of<"circle">;
/** The description of the interface cannot say that each corner has two numbers. */
export type Polygon = { form: "polygon"; points: [x: number, y: number][] };
export type Ring = Of<"ring">;
export type Sector = Of<"sector">;
/** The centre is the beam where it is not given. */
export type Centred = Pick<Ring, "x_px" | "y_px">;

export type Shape = Rectangle | Circle | Polygon | Ring | Sector;
export type Form = Shape["form"];

export interface DrawnRegion {
  name: string;
  shape: Shape;
}

export interface DrawnShapes {
  mask: Shape[];
  regions: DrawnRegion[];
}

/** What the service has, and with it the tag that says whether somebody has changed it since. */
export type SavedShapes = Omit<Schemas["ShapesState"], "mask" | "regions"> & DrawnShapes & { tag: string | null };

export type ListName = keyof DrawnShapes;

/** One of the shapes. */
export interface Place {
  list: ListName;
  index: number;
}

export const NO_SHAPES: DrawnShapes = { mask: [], regions: [] };

export const FORM_WORDS: Record<Form, string> = {
  rectangle: "Rectangle",
  circle: "Circle",
  polygon: "Polygon",
  ring: "Ring",
  sector: "Sector",
};

export const FORMS_OF: Record<ListName, readonly Form[]> = {
  mask: ["rectangle", "circle", "polygon"],
  regions: ["rectangle", "circle", "ring", "sector"],
};

/** Where its centre is; null if that is the beam and it is not known where the beam is. */
export function centreOf(shape: Circle | Ring | Sector, beam: Point | null): Point | null {
  const [x, y] = [shape.x_px ?? beam?.x, shape.y_px ?? beam?.y];
  return x === undefined || y === undefined ? null : { x, y };
}

export function shapeAt(shapes: DrawnShapes, { list, index }: Place): Shape | null {
  return (list === "mask" ? shapes.mask[index] : shapes.regions[index]?.shape) ?? null;
}

export function replaced(shapes: DrawnShapes, { list, index }: Place, shape: Shape): DrawnShapes {
  const { mask, regions } = shapes;
  return list === "mask"
    ? { mask: mask.map((one, n) => (n === index ? shape : one)), regions }
    : { mask, regions: regions.map((one, n) => (n === index ? { ...one, shape } : one)) };
}

export function without({ mask, regions }: DrawnShapes, { list, index }: Place): DrawnShapes {
  const left = <T>(all: T[]) => all.filter((_, n) => n !== index);
  return list === "mask" ? { mask: left(mask), regions } : { mask, regions: left(regions) };
}

export function renamed({ mask, regions }: DrawnShapes, index: number, name: string): DrawnShapes {
  return { mask, regions: regions.map((one, n) => (n === index ? { ...one, name } : one)) };
}

function freeName(regions: readonly DrawnRegion[]): string {
  const names = new Set(regions.map(({ name }) => name));
  for (let n = regions.length + 1; ; n++) if (!names.has(`region ${n}`)) return `region ${n}`;
}

/** The shape at the end of a list; a region gets a name of its own. */
export function added({ mask, regions }: DrawnShapes, list: ListName, shape: Shape): DrawnShapes {
  return list === "mask"
    ? { mask: [...mask, shape], regions }
    : { mask, regions: [...regions, { name: freeName(regions), shape }] };
}

/** The same numbers in another order of the keys, or a centre that is null and not absent, are no change. */
function written(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(
          Object.entries(one)
            .filter(([, field]) => field !== null)
            .sort(([a], [b]) => (a < b ? -1 : 1)),
        )
      : one,
  );
}

export function areSame(a: DrawnShapes, b: DrawnShapes): boolean {
  if (a === b) return true;
  return written([a.mask, a.regions]) === written([b.mask, b.regions]);
}

/** At most three digits behind the point: nobody draws finer. */
const short = (number: number) => String(Number(number.toFixed(3)));

/** In a few words, for lists. */
export function described(shape: Shape): string {
  const about = ({ x_px, y_px }: Centred) =>
    `${x_px == null ? "beam" : short(x_px)}, ${y_px == null ? "beam" : short(y_px)}`;
  switch (shape.form) {
    case "rectangle":
      return `rectangle ${short(shape.columns)} × ${short(shape.rows)} at ${short(shape.column)}, ${short(shape.row)}`;
    case "circle":
      return `circle of radius ${short(shape.radius_px)} about ${about(shape)}`;
    case "polygon":
      return `polygon with ${shape.points.length} corners`;
    case "ring":
      return `ring ${short(shape.inner_radius_px)} to ${short(shape.radius_px)} about ${about(shape)}`;
    case "sector":
      return `sector of ${short(shape.width_deg)}° from ${short(shape.from_deg)}° about ${about(shape)}`;
    default:
      return "a form that this page does not know";
  }
}
