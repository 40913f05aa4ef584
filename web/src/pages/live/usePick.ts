// What a click in a plot does: it shows the image, or says where it is.

import { useSignal } from "@preact/signals";
import { fileName } from "../../app/format";
import { type Services, shownStatus } from "../../app/services";
import type { Viewer } from "../../image/viewer";
import type { DetectorStatus } from "../../live/types";

export interface Notice {
  words: string;
  /** What a button beside the words does. */
  offer: { text: string; act: () => void } | null;
}

export interface Picked {
  image: number;
  isKept: boolean;
}

/** The file of the newest run, if it is finished. */
export function finishedFile(status: DetectorStatus | null): string | null {
  return status && (status.state === "idle" || status.state === "error") ? (status.file ?? null) : null;
}

export function usePick(
  { connection }: Services,
  viewer: Viewer,
): { notice: Notice | null; pick: (picked: Picked | null) => void } {
  const notice = useSignal<Notice | null>(null);
  const openFrom = (file: string, image: number) => () => {
    notice.value = null;
    viewer.openFile(file, image);
  };
  const pick = (picked: Picked | null) => {
    if (picked === null) return;
    const { image, isKept } = picked;
    notice.value = null;
    if (isKept) {
      viewer.goTo(image);
      return;
    }
    const status = shownStatus(connection);
    const file = finishedFile(status);
    const isGoing = status?.state === "running" && Boolean(status.file);
    const where = file
      ? `it is in ${fileName(file)}.`
      : isGoing
        ? "it can be opened from the file when the run has ended."
        : "no finished file of this run is known.";
    notice.value = {
      words: `Image ${image} is not kept any more: ${where}`,
      offer: file ? { text: "Open it from the file", act: openFrom(file, image) } : null,
    };
  };
  return { notice: notice.value, pick };
}
