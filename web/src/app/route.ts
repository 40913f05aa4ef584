// The page that is shown, by the part of the address after #.

import { type ReadonlySignal, signal } from "@preact/signals";

export const PAGES = [
  { id: "live", name: "Live" },
  { id: "acquire", name: "Acquire" },
  { id: "calibration", name: "Calibration" },
  { id: "performance", name: "Performance" },
  { id: "files", name: "Files" },
  { id: "logs", name: "Logs" },
] as const;

export type PageId = (typeof PAGES)[number]["id"];

/** The page of an address such as `#/files` or `#/live?image=7`; Live if there is no such page. */
export function pageOf(hash: string): PageId {
  const name = /^#\/([a-z]+)/.exec(hash)?.[1];
  return PAGES.find(({ id }) => id === name)?.id ?? "live";
}

export function followAddress(view: Window): ReadonlySignal<PageId> {
  const page = signal(pageOf(view.location.hash));
  view.addEventListener("hashchange", () => {
    page.value = pageOf(view.location.hash);
  });
  return page;
}
