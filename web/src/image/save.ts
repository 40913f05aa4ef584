// Keeps what is seen, or the pixels as the service has them, in a file of the user.

import { type Api, problemOf } from "../api/client";
import type { Viewer } from "./viewer";

function offer(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // Some browsers begin to read only after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function nameOf(viewer: Viewer, ending: string): string | null {
  const header = viewer.header.value;
  if (!header) return null;
  return `${header.detector}_run${header.run}_image${header.image}.${ending}`.replace(/[^\w.-]/g, "_");
}

export function savePicture(viewer: Viewer): void {
  const name = nameOf(viewer, "png");
  const picture = viewer.picture?.();
  if (!name || !picture) return;
  picture.toBlob((content) => {
    if (content) offer(content, name);
  }, "image/png");
}

export async function savePixels(api: Api, viewer: Viewer, format: "tiff" | "npy"): Promise<void> {
  const name = nameOf(viewer, format);
  const header = viewer.header.value;
  if (!name || !header) return;
  const { detector, channel, image } = header;
  try {
    offer(await api.pixels(image, format, detector, channel), name);
  } catch (error) {
    const { detail, hint } = problemOf(error);
    viewer.note.value = `${name} was not saved: ${detail}${hint ? ` (${hint})` : ""}`;
  }
}
