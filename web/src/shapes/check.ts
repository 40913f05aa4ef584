// What the service would not take, said while somebody draws; and files of shapes.

import { type DrawnShapes, FORM_WORDS, FORMS_OF, type Form, type ListName, type Shape } from "./model";

const SHAPES_MAX = 256;
const REGIONS_MAX = 64;
const CORNERS_MAX = 1000;
const NAME_MAX = 64;
const PLACE_MAX = 1e6;

export interface NumberField {
  key: string;
  text: string;
  least: number;
  most: number;
  /** It must be more than the least. */
  isAbove: boolean;
  /** Without it, it is that of the beam. */
  mayBeBeam: boolean;
}

const place = (key: string, text: string, mayBeBeam = false): NumberField => ({
  ...{ key, text, least: -PLACE_MAX, most: PLACE_MAX },
  ...{ isAbove: false, mayBeBeam },
});
const size = (key: string, text: string, isAbove = true): NumberField => ({
  ...{ key, text, least: 0, most: PLACE_MAX },
  ...{ isAbove, mayBeBeam: false },
});

const ROUND = [
  place("x_px", "x of centre, px", true),
  place("y_px", "y of centre, px", true),
  size("inner_radius_px", "Inner radius, px", false),
  size("radius_px", "Outer radius, px"),
];

/** The numbers of a form. */
export const FIELDS: Record<Form, readonly NumberField[]> = {
  rectangle: [place("column", "Column"), place("row", "Row"), size("columns", "Columns"), size("rows", "Rows")],
  circle: [place("x_px", "x of centre, px"), place("y_px", "y of centre, px"), size("radius_px", "Radius, px")],
  polygon: [],
  ring: ROUND,
  sector: [
    ...ROUND,
    { key: "from_deg", text: "From, degrees", least: -360, most: 360, isAbove: false, mayBeBeam: false },
    { key: "width_deg", text: "Width, degrees", least: 0, most: 360, isAbove: true, mayBeBeam: false },
  ],
};

/** What is wrong with a number; null if nothing is. */
export function wrongNumber({ least, most, isAbove, mayBeBeam }: NumberField, value: unknown): string | null {
  if (mayBeBeam && (value === null || value === undefined)) return null;
  if (typeof value === "number" && value <= most && (isAbove ? value > least : value >= least)) return null;
  return isAbove ? `a number above ${least}, at most ${most}` : `a number from ${least} to ${most}`;
}

function wrongCorners(points: unknown): string | null {
  if (!Array.isArray(points) || points.length < 3 || points.length > CORNERS_MAX) {
    return `a polygon has 3 to ${CORNERS_MAX} corners`;
  }
  const isCorner = (point: unknown) =>
    Array.isArray(point) &&
    point.length === 2 &&
    point.every((one) => Math.abs(Number(one)) <= PLACE_MAX && typeof one === "number");
  const wrong = points.findIndex((point) => !isCorner(point));
  return wrong < 0 ? null : `corner ${wrong + 1} is not two numbers from ${-PLACE_MAX} to ${PLACE_MAX}`;
}

const fieldOf = (shape: Shape, key: string): unknown => (shape as unknown as Record<string, unknown>)[key];

/** What is wrong with a shape in this list; null if nothing is. */
export function wrongShape(shape: Shape, list: ListName): string | null {
  if (!FORMS_OF[list].includes(shape.form)) {
    const words = FORMS_OF[list].map((form) => FORM_WORDS[form].toLowerCase()).join(", ");
    return `a form that is not possible here; possible are ${words}`;
  }
  if (shape.form === "polygon") return wrongCorners(shape.points);
  for (const field of FIELDS[shape.form]) {
    const wrong = wrongNumber(field, fieldOf(shape, field.key));
    if (wrong) return `${field.text}: ${wrong}`;
  }
  if ("inner_radius_px" in shape && shape.inner_radius_px >= shape.radius_px) {
    return "the inner radius must be smaller than the outer one";
  }
  return null;
}

export function wrongName(regions: DrawnShapes["regions"], index: number): string | null {
  const name = regions[index]?.name.trim() ?? "";
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what a name must not have
  if (name === "" || [...name].length > NAME_MAX || /[\u0000-\u001f\u007f-\u009f]/.test(name)) {
    return `a name has 1 to ${NAME_MAX} letters`;
  }
  const isTaken = regions.some((other, n) => n !== index && other.name.trim() === name);
  return isTaken ? `another region is called ${name}, too` : null;
}

/** Everything that is wrong, with its place. */
export function problemsOf({ mask, regions }: DrawnShapes): string[] {
  const found: string[] = [];
  if (mask.length > SHAPES_MAX) found.push(`The mask has ${mask.length} shapes; at most ${SHAPES_MAX} are possible.`);
  if (regions.length > REGIONS_MAX)
    found.push(`There are ${regions.length} regions; at most ${REGIONS_MAX} are possible.`);
  for (const [n, shape] of mask.entries()) {
    const wrong = wrongShape(shape, "mask");
    if (wrong) found.push(`Mask, shape ${n + 1}: ${wrong}.`);
  }
  for (const [n, { shape }] of regions.entries()) {
    const wrong = wrongName(regions, n) ?? wrongShape(shape, "regions");
    if (wrong) found.push(`Region ${n + 1}: ${wrong}.`);
  }
  return found;
}

/** A file that can be read here, or sent to the service as it is. */
export const writeShapes = ({ mask, regions }: DrawnShapes): string =>
  `${JSON.stringify({ mask, regions }, null, 2)}\n`;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Reads a file of this page, an answer of the service, or the file in which the service keeps the shapes. */
export function readShapes(text: string): DrawnShapes {
  let read: unknown;
  try {
    read = JSON.parse(text);
  } catch {
    throw new Error("it is no JSON");
  }
  const found = isObject(read) && isObject(read.shapes) ? read.shapes : read;
  if (!isObject(found) || !Array.isArray(found.mask) || !Array.isArray(found.regions)) {
    throw new Error('it has no lists "mask" and "regions"');
  }
  const { mask, regions } = found;
  const isRegion = (one: unknown) => isObject(one) && typeof one.name === "string" && isObject(one.shape);
  if (!mask.every(isObject) || !regions.every(isRegion)) {
    throw new Error("a mask has shapes, and regions have a name and a shape");
  }
  const shapes = { mask, regions } as unknown as DrawnShapes;
  const [first, ...others] = problemsOf(shapes);
  if (first) throw new Error(others.length > 0 ? `${first} There are ${others.length} more problems.` : first);
  return shapes;
}
