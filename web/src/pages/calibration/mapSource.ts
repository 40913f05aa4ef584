// One map of the calibration for the image canvas, which otherwise shows the frames of the live connection.

import { type Signal, signal } from "@preact/signals";
import { type Api, type CalibrationMapQuery, problemOf } from "../../api/client";
import { Viewer } from "../../image/viewer";
import type {
  Connection,
  Contact,
  DetectorStatistics,
  DetectorStatus,
  FrameRequest,
  NoImage,
  Ring,
  ServiceEvent,
} from "../../live/types";

const MAKING: NoImage = { title: "The map is being made …", detail: "", hint: "" };

export class MapSource implements Connection {
  readonly contact: Signal<Contact>;
  readonly detectors: Signal<DetectorStatus[] | null>;
  readonly detector: Signal<string | null>;
  readonly statistics = signal<DetectorStatistics | null>(null);
  readonly ring = signal<Ring | null>(null);
  readonly events = signal<ServiceEvent[]>([]);
  readonly frame = signal<ArrayBuffer | null>(null);
  readonly noImage = signal<NoImage | null>(null);
  readonly viewer: Viewer;

  private request: FrameRequest | null = null;
  private map: CalibrationMapQuery | null = null;
  /** What the frame is of that is shown. */
  private shown = "";
  private asked = 0;

  constructor(
    private readonly live: Connection,
    private readonly api: Pick<Api, "calibrationMap">,
  ) {
    this.contact = live.contact;
    this.detectors = live.detectors;
    this.detector = live.detector;
    this.viewer = new Viewer(this);
    this.viewer.look.value = { ...this.viewer.look.value, map: "viridis", isInverted: false };
  }

  /** Shows this map; `version` changes when the calibration does. */
  show(map: CalibrationMapQuery, version: string): void {
    this.map = map;
    void this.ask(JSON.stringify([this.detector.value, map, version]));
  }

  watchFrames(request: FrameRequest | null): void {
    this.request = request;
    if (request === null) {
      this.asked += 1;
      this.shown = "";
      this.frame.value = null;
    } else {
      void this.ask(this.wanted);
    }
  }

  acknowledge(): void {}

  useToken(token: string): void {
    this.live.useToken(token);
  }

  forgetToken(): void {
    this.live.forgetToken();
  }

  showDetector(name: string): void {
    this.live.showDetector(name);
  }

  private wanted = "";

  /** Only the newest answer counts: the others are of another map, or of another part of it. */
  private async ask(wanted: string): Promise<void> {
    const [request, map, detector] = [this.request, this.map, this.detector.value];
    this.wanted = wanted;
    this.asked += 1;
    const asked = this.asked;
    if (request === null || map === null || detector === null) return;
    if (this.frame.value === null) this.noImage.value = MAKING;
    const part = {
      ...(request.region ? { region: request.region.join(",") } : {}),
      ...(request.pixels_max === undefined ? {} : { pixels_max: request.pixels_max }),
    };
    try {
      const message = await this.api.calibrationMap(detector, map, part);
      if (asked !== this.asked) return;
      this.noImage.value = null;
      // Another map has other numbers, so it sets the contrast anew.
      if (this.shown !== wanted) this.viewer.contrast.value = null;
      this.shown = wanted;
      this.frame.value = message;
    } catch (error) {
      if (asked !== this.asked) return;
      const { detail, hint } = problemOf(error);
      this.noImage.value = { title: "There is no such map.", detail, hint: hint ?? "" };
      this.shown = "";
      this.frame.value = null;
    }
  }
}
