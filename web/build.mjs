// Makes the bundle in dist/, which is part of the repository and of the binary. With --tests, makes the tests instead.

import { cpSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import { build } from "esbuild";

const tests = process.argv.includes("--tests");
const listed = (folder) =>
  readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? listed(`${folder}/${entry.name}`) : [`${folder}/${entry.name}`],
  );

if (tests) {
  rmSync("build/tests", { recursive: true, force: true });
  await build({
    entryPoints: listed("src").filter((name) => /\.test\.tsx?$/.test(name)),
    outdir: "build/tests",
    outExtension: { ".js": ".mjs" },
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node18",
    jsx: "automatic",
    jsxImportSource: "preact",
    sourcemap: "inline",
  });
} else {
  rmSync("dist", { recursive: true, force: true });
  mkdirSync("dist", { recursive: true });
  await build({
    entryPoints: { konkordia: "src/main.tsx" },
    outdir: "dist",
    bundle: true,
    minify: true,
    format: "esm",
    target: ["es2022"],
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
  });
  cpSync("src/index.html", "dist/index.html");
  cpSync("src/icon.svg", "dist/icon.svg");
}
