// What lies above the image and does not come with it: modules, regions, the drawn mask.

import { computed, effect, untracked } from "@preact/signals";
import { isCurrent, type Services, shownStatus } from "../../app/services";
import { endReference } from "../../image/reference";
import type { Viewer } from "../../image/viewer";
import { momentOf } from "./renew";

/** What belongs to one detector means nothing for another one. */
function forget(viewer: Viewer): void {
  viewer.modules.value = null;
  viewer.shapes.value = null;
  endReference(viewer);
  if (viewer.file.value !== null) viewer.closeFile();
}

/** Asks again when there is another run: the configuration or the shapes may be others. A service that does not answer
 * is older than this page; then there is nothing to draw. */
export function followDetector({ connection, api }: Services, viewer: Viewer): () => void {
  const moment = computed(() => momentOf(shownStatus(connection)));
  const mayAsk = computed(() => isCurrent(connection));
  let last = connection.detector.peek();
  return effect(() => {
    const detector = connection.detector.value;
    if (last !== null && detector !== last) untracked(() => forget(viewer));
    last = detector;
    if (detector === null || moment.value === null || !mayAsk.value) return;
    let isWanted = true;
    const keep = <T>(asked: Promise<T>, show: (found: T) => void) =>
      void asked.then(
        (found) => isWanted && show(found),
        () => {},
      );
    keep(api.modules(detector), (found) => {
      viewer.modules.value = found;
    });
    keep(api.shapes(detector), (found) => {
      viewer.shapes.value = found;
    });
    return () => {
      isWanted = false;
    };
  });
}
