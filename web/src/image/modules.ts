// Where the modules of the detector are in the image.

import type { Region } from "./frame";

export interface ModulePlace {
  index: number;
  name: string;
  column: number;
  row: number;
  columns: number;
  rows: number;
}

/** As `GET /api/v1/modules` gives it. */
export interface ModuleMap {
  rows: number | null;
  columns: number | null;
  modules: ModulePlace[];
}

interface Image {
  rows: number;
  columns: number;
}

/** The modules of an image of this size: a file may be of another detector than the one that is configured. */
export function modulesOf(map: ModuleMap | null, image: Image): ModulePlace[] {
  return map && map.rows === image.rows && map.columns === image.columns ? map.modules : [];
}

export function moduleAt(modules: readonly ModulePlace[], column: number, row: number): ModulePlace | null {
  const isIn = (one: ModulePlace) =>
    column >= one.column && row >= one.row && column < one.column + one.columns && row < one.row + one.rows;
  return modules.find(isIn) ?? null;
}

export const regionOf = ({ column, row, columns, rows }: ModulePlace): Region => [column, row, columns, rows];
