// Light or dark: as the system has it, unless somebody chose here.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "konkordia.theme";
const DARK = "(prefers-color-scheme: dark)";
export const theme = signal<Theme>("system");
export const isDark = signal(false);

export function loadTheme(): void {
  matchMedia(DARK).addEventListener("change", () => show(theme.peek()));
  const kept = localStorage.getItem(KEY);
  show(kept === "light" || kept === "dark" ? kept : "system");
}

export function chooseTheme(chosen: Theme): void {
  if (chosen === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, chosen);
  show(chosen);
}

function show(chosen: Theme): void {
  theme.value = chosen;
  const dark = chosen === "dark" || (chosen === "system" && matchMedia(DARK).matches);
  // Before those who draw with the colours of the page hear of it.
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  isDark.value = dark;
}
