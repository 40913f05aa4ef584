// What tests of the image share: a connection that only remembers, and messages.

import { signal } from "@preact/signals";
import type { Connection, FrameRequest, Ring } from "../live/types";
import type { FrameHeader } from "./frame";
import { Viewer } from "./viewer";

export function connection(): Connection & { asked: (FrameRequest | null)[] } {
  const asked: (FrameRequest | null)[] = [];
  return {
    asked,
    contact: signal({ kind: "connecting" as const }),
    detectors: signal(null),
    detector: signal<string | null>("jf"),
    statistics: signal(null),
    ring: signal<Ring | null>({ first: 10, last: 20, run: 1 }),
    events: signal([]),
    frame: signal(null),
    noImage: signal(null),
    useToken() {},
    forgetToken() {},
    showDetector() {},
    watchFrames: (request) => asked.push(request),
    acknowledge() {},
  };
}

export function message(changes: Partial<FrameHeader>, codes: number[]): ArrayBuffer {
  const header = {
    ...{ sequence: 1, detector: "jf", run: 1, image: 15, rows: 2, columns: 4, region: [0, 0, 4, 2], bin: 1 },
    ...{ frame_rows: 2, frame_columns: 4, format: "code16", coding: "count", packing: "none", bytes: 16 },
    ...{ levels: [0, 40], geometry: null, results: {}, ...changes },
  };
  let text = JSON.stringify(header);
  while ((8 + text.length) % 8) text += " ";
  const bytes = new Uint8Array(8 + text.length + 2 * codes.length);
  bytes.set([75, 70, 82, 49]);
  new DataView(bytes.buffer).setUint32(4, text.length, true);
  bytes.set(new TextEncoder().encode(text), 8);
  bytes.set(new Uint8Array(Uint16Array.from(codes).buffer), 8 + text.length);
  return bytes.buffer;
}

/** 0 to 3 counts, and below them each kind of pixel without a count. */
export const CODES = [4112, 4113, 4114, 4115, 0, 1, 2, 65535];

export function shown(changes: Partial<FrameHeader> = {}, codes = CODES): Viewer {
  const viewer = new Viewer(connection());
  give(viewer, changes, codes);
  return viewer;
}

/** A frame comes and is drawn. */
export function give(viewer: Viewer, changes: Partial<FrameHeader> = {}, codes = CODES): number | null {
  viewer.take(message(changes, codes));
  return viewer.decodeWaiting();
}
