import assert from "node:assert/strict";
import { test } from "node:test";
import { pageOf } from "./route";

test("addresses lead to pages, and unknown ones to Live", () => {
  assert.equal(pageOf(""), "live");
  assert.equal(pageOf("#/files"), "files");
  assert.equal(pageOf("#/live?image=7"), "live");
  assert.equal(pageOf("#/nowhere"), "live");
});
