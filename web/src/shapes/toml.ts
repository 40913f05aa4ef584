// The regions as lines of a recipe.

import type { Centred, DrawnRegion, Rectangle, Shape } from "./model";

type Line = [key: string, value: string | number];

/** Places in recipes count from the centre of the first pixel, those of drawn shapes from its outer corner. */
const ofCentre = (place: number) => Number((place - 0.5).toFixed(6));

/** The columns, or rows, whose centres lie within; the borders themselves if there is none. */
function lastAndFirst(from: number, size: number): [number, number] {
  const [first, last] = [Math.ceil(from - 0.5), Math.floor(from + size - 0.5)];
  // A border between two pixels, as drawn ones are, belongs to neither.
  return last >= first ? [first, last] : [ofCentre(from), ofCentre(from + size)];
}

function box({ column, row, columns, rows }: Rectangle): string {
  const [left, right] = lastAndFirst(column, columns);
  const [top, bottom] = lastAndFirst(row, rows);
  return `[${[left, top, right, bottom].join(", ")}]`;
}

function centre({ x_px, y_px }: Centred): Line[] {
  const lines: Line[] = [];
  if (x_px != null) lines.push(["x_px", ofCentre(x_px)]);
  if (y_px != null) lines.push(["y_px", ofCentre(y_px)]);
  return lines;
}

function linesOf(shape: Shape): Line[] {
  switch (shape.form) {
    case "rectangle":
      return [
        ["shape", '"box"'],
        ["corners_px", box(shape)],
      ];
    case "circle":
      return [["shape", '"circle"'], ...centre(shape), ["radius_px", shape.radius_px]];
    case "ring":
    case "sector": {
      const radii: Line[] = [
        ["radius_px", shape.radius_px],
        ["inner_radius_px", shape.inner_radius_px],
      ];
      const angles: Line[] =
        shape.form === "sector"
          ? [
              ["from_deg", shape.from_deg],
              ["width_deg", shape.width_deg],
            ]
          : [];
      return [["shape", `"${shape.form}"`], ...centre(shape), ...radii, ...angles];
    }
    default:
      return [];
  }
}

/** `[[region]]` for each region. Strings of JSON are strings of TOML. */
export function regionsToml(regions: readonly DrawnRegion[]): string {
  const tables = regions.map(({ name, shape }) => {
    const lines: Line[] = [["name", JSON.stringify(name)], ...linesOf(shape)];
    return `[[region]]\n${lines.map(([key, value]) => `${key} = ${value}\n`).join("")}`;
  });
  return tables.join("\n");
}
