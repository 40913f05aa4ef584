// How much a run will be, as far as the configuration says it.

import type { ArmRequest, Configuration, FileEntry } from "../../api/client";

const PIXEL_BYTES: Record<string, number> = {
  int8: 1,
  uint8: 1,
  int16: 2,
  uint16: 2,
  raw: 2,
  int32: 4,
  uint32: 4,
  float32: 4,
  float64: 8,
};

const numberIn = (value: unknown): number | null => (typeof value === "number" && value > 0 ? value : null);

/** Bytes of one image without compression; null if the configuration does not say shape and type. */
export function imageBytes(configuration: Configuration): number | null {
  const { image_rows: rows, image_columns: columns, dtype } = configuration;
  const pixel = typeof dtype === "string" ? PIXEL_BYTES[dtype] : undefined;
  const [height, width] = [numberIn(rows), numberIn(columns)];
  return height !== null && width !== null && pixel !== undefined ? height * width * pixel : null;
}

export interface Estimate {
  images: number;
  bytesMax: number | null;
  /** With images as small as those of the last file. */
  bytesLikely: number | null;
  seconds: number | null;
}

/** Null without a planned number of images. */
export function estimate(request: ArmRequest, configuration: Configuration, files: FileEntry[]): Estimate | null {
  const images = request.images ?? numberIn(configuration.images);
  if (!images) return null;
  const bytes = imageBytes(configuration);
  const last = files.filter((file) => file.images > 0 && file.bytes > 0).at(-1);
  const frameTimeUs = request.metadata?.frame_time_us;
  return {
    images,
    bytesMax: bytes === null ? null : bytes * images,
    bytesLikely: last === undefined ? null : (last.bytes / last.images) * images,
    seconds: typeof frameTimeUs === "number" ? frameTimeUs * 1e-6 * images : null,
  };
}
