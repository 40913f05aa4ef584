import assert from "node:assert";
import { test } from "node:test";
import { wantedRenderer } from "./choose";

test("WebGL2 where a graphics card draws", () => {
  assert.equal(wantedRenderer("", "ANGLE (NVIDIA, NVIDIA GeForce RTX 3060)"), "webgl");
  assert.equal(wantedRenderer("", "ANGLE (Google, Vulkan 1.3.0 (SwiftShader Device (Subzero)))"), "2d");
  assert.equal(wantedRenderer("", "llvmpipe (LLVM 15.0.6, 256 bits)"), "2d");
  assert.equal(wantedRenderer("", null), "2d");
});

test("the query decides, where that is possible", () => {
  assert.equal(wantedRenderer("?renderer=webgl", "SwiftShader"), "webgl");
  assert.equal(wantedRenderer("?renderer=2d", "NVIDIA"), "2d");
  assert.equal(wantedRenderer("?renderer=webgl", null), "2d");
  assert.equal(wantedRenderer("?renderer=other", "NVIDIA"), "webgl");
});
