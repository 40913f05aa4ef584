// What the parts of the page share: messages of docs/live.md, and the connection as pages see it.

import type { Signal } from "@preact/signals";
import type { components } from "../api/schema";

export type DetectorStatus = components["schemas"]["DetectorStatus"];
export type DetectorStatistics = components["schemas"]["DetectorStatistics"];
export type ServiceEvent = components["schemas"]["ServiceEvent"];
export type Role = "view" | "operate" | "configure";

/** What went wrong, with what to do about it (RFC 9457, as far as pages show it). */
export interface Problem {
  code: string;
  detail: string;
  hint?: string | undefined;
}

/** Which frames are wanted; the field names are those of docs/live.md. */
export interface FrameRequest {
  image?: "latest" | "hit" | number;
  /** The master of a finished file; null: the newest images. */
  file?: string | null;
  /** Sum or maximum of the image and those before it. */
  stack?: { by: "sum" | "maximum"; images: number } | null;
  channel?: string | null;
  region?: [column: number, row: number, columns: number, rows: number] | null;
  pixels_max?: number;
  hz_max?: number;
}

/** The images that can be asked for. */
export interface Ring {
  first: number;
  last: number;
  run: number;
}

/** Whether the service answers. Nothing is shown that was not received; what is old is shown as old. */
export type Contact =
  | { kind: "connecting" }
  | { kind: "token"; problem: Problem | null }
  | { kind: "connected"; name: string; role: Role; version: string }
  | { kind: "lost"; since: Date; attempts: number };

/** Why there is no image, or no map. */
export interface NoImage {
  title?: string;
  detail: string;
  hint: string;
}

/** The one connection of a tab. */
export interface Connection {
  readonly contact: Signal<Contact>;
  /** All detectors; null before the first answer. */
  readonly detectors: Signal<DetectorStatus[] | null>;
  /** Name of the detector that is shown. */
  readonly detector: Signal<string | null>;
  readonly statistics: Signal<DetectorStatistics | null>;
  readonly ring: Signal<Ring | null>;
  /** The newest events, oldest first, at most 1000. */
  readonly events: Signal<ServiceEvent[]>;
  /** The newest binary message. */
  readonly frame: Signal<ArrayBuffer | null>;
  /** Why there is no frame, if one was asked for that is not there. */
  readonly noImage: Signal<NoImage | null>;
  useToken(token: string): void;
  forgetToken(): void;
  showDetector(name: string): void;
  watchFrames(request: FrameRequest | null): void;
  /** The frame with this number was drawn; the service may send another one. */
  acknowledge(sequence: number): void;
}
