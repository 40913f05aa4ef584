// Keeps what is seen, or the pixels as the service has them, in a file of the user.

import { type Api, problemOf } from "../api/client";
import { fileName } from "../app/format";
import type { Viewer } from "./viewer";

export function offer(content: Blob, name: string): void {
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
  const { detector, run, image, file, stack } = header;
  const from = file ? fileName(file).replace(/(_master)?\.\w+$/, "") : `${detector}_run${run}`;
  // The pixels are those of the image alone.
  const images = stack && ending === "png" ? `${stack.by}_of_images${stack.first}-${image}` : `image${image}`;
  return `${from}_${images}.${ending}`.replace(/[^\w.-]/g, "_");
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
  const { image } = header;
  try {
    offer(await api.pixels(image, format, { ...header, file: header.file ?? null }), name);
  } catch (error) {
    const { detail, hint } = problemOf(error);
    viewer.note.value = `${name} was not saved: ${detail}${hint ? ` (${hint})` : ""}`;
  }
}
