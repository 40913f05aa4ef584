// An image that stays beside the others: it is asked for once as a whole, and then only drawn.

import { effect, signal } from "@preact/signals";
import { fileName } from "../app/format";
import type { Connection } from "../live/types";
import { isWhole } from "./capture";
import type { FrameHeader } from "./frame";
import { imagesText } from "./stack";
import { PIXELS_MOST } from "./view";
import { Viewer } from "./viewer";

/** A connection that has one frame and gets no other. */
function still(connection: Connection, message: ArrayBuffer): Connection {
  const { contact, detectors, detector, statistics, ring, events } = connection;
  const nothing = () => {};
  return {
    ...{ contact, detectors, detector, statistics, ring, events },
    frame: signal<ArrayBuffer | null>(message),
    noImage: signal(null),
    ...{ useToken: nothing, forgetToken: nothing, showDetector: nothing, watchFrames: nothing, acknowledge: nothing },
  };
}

function show(viewer: Viewer, message: ArrayBuffer): void {
  viewer.capture.value = null;
  viewer.reference.value = new Viewer(still(viewer.connection, message), viewer);
}

/** Keeps the image that is shown; where it is gone meanwhile, the part of it that was shown. */
export function keepReference(viewer: Viewer): void {
  const { message } = viewer;
  const image = viewer.header.value?.image;
  if (!message || image === undefined) return;
  const request = { ...viewer.requestOf(image), region: null, pixels_max: PIXELS_MOST };
  const capture = { request, take: (whole: ArrayBuffer) => show(viewer, whole) };
  viewer.capture.value = capture;
  let isAsked = false;
  const stop = effect(() => {
    const isGone = viewer.connection.noImage.value !== null;
    const isDone = viewer.capture.value !== capture;
    // The first time, what is known is of an earlier question.
    if (isAsked && isGone && !isDone) show(viewer, message);
    if (isAsked && (isGone || isDone)) queueMicrotask(() => stop());
    isAsked = true;
  });
}

export function endReference(viewer: Viewer): void {
  viewer.capture.value = null;
  viewer.reference.value = null;
}

/** What the reference is, and how much of it is there. */
export function referenceText(header: FrameHeader): string {
  const from = header.file ? fileName(header.file) : `run ${header.run}`;
  const dots = header.bin > 1 ? `, each dot the largest of ${header.bin} × ${header.bin} pixels` : "";
  const part = isWhole(header) ? "" : ", only the part that was shown: the image is not kept any more";
  return `${imagesText(header)} · ${from}${dots}${part}`;
}
