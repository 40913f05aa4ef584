import assert from "node:assert";
import { test } from "node:test";
import { give, shown } from "./fixtures";

const FILE = "/data/a_master.h5";

function playing() {
  const viewer = shown();
  viewer.openFile(FILE, 1);
  viewer.fileImages.value = 3;
  const { playback } = viewer;
  const arrive = (image: number) => give(viewer, { image, run: null, file: FILE });
  return { viewer, playback, arrive };
}

test("the next image is asked for when the last one was shown", () => {
  const { viewer, playback, arrive } = playing();
  playback.tick();
  assert.equal(viewer.source.value, 1);
  arrive(1);
  playback.tick();
  playback.tick();
  assert.equal(viewer.source.value, 2);
});

test("an image that is not there does not stop it", () => {
  const { viewer, playback } = playing();
  viewer.connection.noImage.value = { detail: "image 1 cannot be read", hint: "" };
  playback.tick();
  assert.equal(viewer.source.value, 2);
});

test("it ends at the last image, and begins again at the first one", () => {
  const { viewer, playback, arrive } = playing();
  playback.toggle();
  assert.equal(playback.isPlaying.value, true);
  viewer.source.value = 2;
  arrive(2);
  playback.tick();
  assert.equal(playback.isPlaying.value, false);
  playback.toggle();
  assert.equal(viewer.source.value, 0);
  viewer.step(1);
  assert.equal(playback.isPlaying.value, false);
});

test("it goes as fast as was chosen", async () => {
  const { viewer, playback, arrive } = playing();
  arrive(1);
  playback.setRate(10);
  playback.toggle();
  await new Promise((done) => setTimeout(done, 150));
  assert.equal(viewer.source.value, 2);
  playback.stop();
});

test("without knowing how many images there are it does not begin", () => {
  const { viewer, playback } = playing();
  viewer.fileImages.value = null;
  playback.toggle();
  assert.equal(playback.isPlaying.value, false);
});
