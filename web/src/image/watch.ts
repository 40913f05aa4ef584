// Tells the service which frames are wanted, when that has settled.

import { effect } from "@preact/signals";
import type { FrameRequest } from "../live/types";
import type { Viewer } from "./viewer";

const SETTLED_MS = 150;

const sourceOf = ({ image, channel, file, stack }: FrameRequest) => JSON.stringify([image, channel, file, stack]);

/** Follows the viewer until the function that it gives is called. */
export function watchWith(viewer: Viewer): () => void {
  let sent = "";
  let source: string | null = null;
  let detector: string | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const send = () => {
    const request = viewer.request();
    const text = JSON.stringify([detector, request]);
    if (text === sent) return;
    sent = text;
    source = sourceOf(request);
    viewer.connection.watchFrames(request);
  };

  const stop = effect(() => {
    const { width, height } = viewer.canvas.value;
    const request = viewer.request();
    const shown = viewer.connection.detector.value;
    if (width === 0 || height === 0) return;
    clearTimeout(timer);
    // Another image is wanted at once; another part of it only when the wheel stands still.
    const isOther = sent === "" || sourceOf(request) !== source || shown !== detector;
    detector = shown;
    if (isOther) queueMicrotask(send);
    else timer = setTimeout(send, SETTLED_MS);
  });
  return () => {
    stop();
    clearTimeout(timer);
    viewer.connection.watchFrames(null);
  };
}
