// Keeps what is seen, or the pixels as the service has them, in a file of the user.

import { type Api, problemOf } from "../api/client";
import { fileName } from "../app/format";
import type { FrameHeader } from "./frame";
import { imagesText, STACK_MOST } from "./stack";
import type { Viewer } from "./viewer";

export function offer(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // Some browsers begin to read only after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** As its numbers say it. */
function nameOf({ detector, run, image, file, stack }: FrameHeader, ending: string): string {
  const from = file ? fileName(file).replace(/(_master)?\.\w+$/, "") : `${detector}_run${run}`;
  const images = stack && stack.images > 1 ? `${stack.by}_of_images${stack.first}-${image}` : `image${image}`;
  return `${from}_${images}.${ending}`.replace(/[^\w.-]/g, "_");
}

export function savePicture(viewer: Viewer): void {
  const header = viewer.header.value;
  const picture = viewer.picture?.();
  if (!header || !picture) return;
  const name = nameOf(header, "png");
  picture.toBlob((content) => {
    if (content) offer(content, name);
  }, "image/png");
}

export async function savePixels(api: Api, viewer: Viewer, format: "tiff" | "npy"): Promise<void> {
  const header = viewer.header.value;
  if (!header) return;
  const { detector, channel, image } = header;
  const shown = header.stack && header.stack.images > 1 ? header.stack : null;
  // Those between that are lost count too, when the service goes back from the last one.
  const images = shown && Math.min(STACK_MOST, image - shown.first + 1);
  try {
    const stack = shown && images ? { by: shown.by, images } : null;
    const saved = await api.pixels(image, format, { detector, channel, file: header.file ?? null, stack });
    const ofSaved = { ...header, stack: shown ? { ...shown, ...saved.stack } : header.stack };
    offer(saved.content, nameOf(ofSaved, format));
    // Some of those that were shown may be gone meanwhile.
    if (imagesText(ofSaved) !== imagesText(header)) {
      viewer.note.value = `saved is the ${imagesText(ofSaved)}: others are not kept any more`;
    }
  } catch (error) {
    const { detail, hint } = problemOf(error);
    viewer.note.value = `${nameOf(header, format)} was not saved: ${detail}${hint ? ` (${hint})` : ""}`;
  }
}
