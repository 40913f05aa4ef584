// The one frame that is asked for as a reference: all of an image, as exact as one frame can be.

import type { FrameRequest } from "../live/types";
import { type FrameHeader, readHeader } from "./frame";
import { PIXELS_MOST } from "./view";

export interface Capture {
  request: FrameRequest;
  /** Called with the message when it has come. */
  take: (message: ArrayBuffer) => void;
}

/** Side of the squares in which all of an image of this size fits into one frame. */
export function wholeBin(columns: number, rows: number): number {
  let bin = 1;
  while (Math.ceil(columns / bin) * Math.ceil(rows / bin) > PIXELS_MOST) bin += 1;
  return bin;
}

export function isWhole({ region, columns, rows }: FrameHeader): boolean {
  return region[2] === columns && region[3] === rows;
}

/** Whether a message is the frame that was asked for, and not an earlier one of the same image. */
export function isCapture({ request }: Capture, message: ArrayBuffer): boolean {
  try {
    const header = readHeader(message);
    const isSame = header.image === request.image && (header.file ?? null) === (request.file ?? null);
    const isStacked = (header.stack ?? null) !== null;
    const isExact = isWhole(header) && header.bin === wholeBin(header.columns, header.rows);
    return isSame && isExact && isStacked === Boolean(request.stack);
  } catch {
    return false;
  }
}
