// Numbers of a file as people read them.

import { UNKNOWN } from "../../app/format";

/** How many times smaller the pixels are in the file. */
export function ratio(unpacked: number | null | undefined, packed: number | null | undefined): string {
  return unpacked && packed ? `${(unpacked / packed).toFixed(1)} ×` : UNKNOWN;
}

/** `1030 × 514`, the columns first, as images are named. */
export const size = (columns: number, rows: number): string => `${columns} × ${rows} pixels`;

/** The page Live with an image of a file of this detector. */
export function liveLink(detector: string, master: string, image: number): string {
  return `#/live?detector=${encodeURIComponent(detector)}&file=${encodeURIComponent(master)}&image=${image}`;
}

/** What was typed as the number of an image; null if there is no such image. */
export function imageOf(text: string, images: number): number | null {
  if (!/^\d{1,15}$/.test(text.trim())) return null;
  const number = Number(text);
  return number < images ? number : null;
}
