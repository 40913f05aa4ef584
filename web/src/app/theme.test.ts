import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

type Colours = Record<string, string>;

/** The colours of each block of theme.css that has any: light and dark. */
function blocks(): Colours[] {
  const text = readFileSync("src/app/theme.css", "utf8");
  const found = [...text.matchAll(/:root[^{]*\{([^}]*)\}/g)].map((match) =>
    Object.fromEntries(
      [...(match[1] ?? "").matchAll(/(--[\w-]+): (#[0-9a-f]{6});/g)].map((pair) => [pair[1], pair[2]]),
    ),
  );
  return found.filter((colours) => Object.keys(colours).length > 0);
}

function luminance(colour: string): number {
  const parts = [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16) / 255);
  const [red = 0, green = 0, blue = 0] = parts.map((part) =>
    part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a = "", b = ""): number {
  const [dark = 0, light = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}

const TEXTS: [string, string[]][] = [
  ["--text", ["--ground", "--surface", "--surface-raised", "--info-ground", "--warning-ground", "--error-ground"]],
  ["--text-soft", ["--ground", "--surface", "--surface-raised", "--info-ground", "--warning-ground", "--error-ground"]],
  ["--accent", ["--ground", "--surface", "--surface-raised", "--info-ground"]],
  ["--accent-text", ["--accent"]],
  ["--good", ["--surface", "--good-ground"]],
  ["--info", ["--surface", "--info-ground"]],
  ["--warning", ["--surface", "--warning-ground"]],
  ["--error", ["--surface", "--error-ground", "--warning-ground"]],
];
const EDGES = ["--line-strong", "--focus", "--series-1", "--series-2", "--series-3", "--series-4"];

test("texts and edges have the contrast of WCAG AA in both themes", () => {
  const all = blocks();
  assert.deepEqual(all.map(Object.keys), [Object.keys(all[0] ?? {}), Object.keys(all[0] ?? {})]);
  for (const [n, colours] of all.entries()) {
    for (const [text, grounds] of TEXTS) {
      for (const ground of grounds) {
        const found = contrast(colours[text], colours[ground]);
        assert.ok(found >= 4.5, `block ${n}: ${text} on ${ground}: ${found.toFixed(2)}`);
      }
    }
    for (const edge of EDGES) assert.ok(contrast(colours[edge], colours["--surface"]) >= 3, `block ${n}: ${edge}`);
  }
});
