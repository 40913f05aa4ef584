// Light or dark: as the system has it, unless somebody chose here.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "konkordia.theme";
export const theme = signal<Theme>("system");

export function loadTheme(): void {
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
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}
