import assert from "node:assert";
import { test } from "node:test";
import { wholeBin } from "./capture";
import { compared, largestOf } from "./compare";
import { CODES, give, message, shown } from "./fixtures";
import type { FrameHeader } from "./frame";
import { endReference, keepReference, referenceText } from "./reference";
import type { Viewer } from "./viewer";
import { watchWith } from "./watch";

const settled = () => new Promise((done) => setTimeout(done, 0));

test("squares of a reference are as small as they can be", () => {
  assert.equal(wholeBin(2048, 2048), 1);
  assert.equal(wholeBin(2068, 2162), 2);
  assert.equal(wholeBin(4150, 4371), 3);
});

/** A part of the image is shown, and the whole of it is asked for. */
function asking(): Viewer {
  const viewer = shown({ region: [0, 0, 2, 2], frame_columns: 2, bytes: 8 }, [4112, 4113, 0, 1]);
  viewer.canvas.value = { width: 400, height: 200 };
  keepReference(viewer);
  return viewer;
}

test("a reference is asked for once as a whole, and what is shown goes on", async () => {
  const viewer = asking();
  assert.deepEqual(viewer.request(), { image: 15, hz_max: 10, region: null, pixels_max: 4194304 });
  // The newest image, which was on its way, is shown and is no reference.
  give(viewer, { image: 16 });
  assert.deepEqual([viewer.header.value?.image, viewer.reference.value], [16, null]);
  assert.equal(give(viewer, { image: 15, sequence: 8 }), 8);
  const reference = viewer.reference.value;
  assert.equal(viewer.header.value?.image, 16);
  assert.equal(viewer.request().image, "latest");
  assert.ok(reference);
  reference.take(reference.connection.frame.value);
  reference.decodeWaiting();
  assert.equal(reference.header.value?.image, 15);
  assert.equal(referenceText(reference.header.value as FrameHeader), "image 15 · run 1");
  // Both have the same view and colours.
  reference.changeView((view) => ({ ...view, x: 1 }));
  assert.equal(viewer.actualView()?.x, 1);
  assert.deepEqual(reference.actualView(), viewer.actualView());
  viewer.look.value = { ...viewer.look.value, map: "viridis" };
  assert.equal(reference.look.value.map, "viridis");
  endReference(viewer);
  await settled();
  assert.equal(viewer.reference.value, null);
});

test("of an image that is gone, the part that was shown is kept", async () => {
  const viewer = asking();
  const stop = watchWith(viewer);
  await settled();
  viewer.connection.noImage.value = { detail: "image 15 is not kept", hint: "" };
  const reference = viewer.reference.value;
  assert.ok(reference);
  assert.equal(viewer.capture.value, null);
  reference.take(reference.connection.frame.value);
  reference.decodeWaiting();
  assert.match(referenceText(reference.header.value as FrameHeader), /only the part that was shown/);
  await settled();
  viewer.reference.value = null;
  viewer.connection.noImage.value = null;
  viewer.connection.noImage.value = { detail: "another one", hint: "" };
  assert.equal(viewer.reference.value, null);
  stop();
});

test("the difference is that of the same pixels", () => {
  const frameOf = (changes: Partial<FrameHeader>, codes: number[]) => {
    const { frame } = shown(changes, codes);
    assert.ok(frame);
    return frame;
  };
  const reference = frameOf({}, CODES);
  const plus = frameOf({}, [4115, 4113, 4113, 1, 4112, 4112, 4112, 4112]);
  const at = (x: number, y: number) => compared(plus, reference, { x: x + 0.5, y: y + 0.5 });
  assert.deepEqual(at(0, 0), { reference: "0", difference: "+3" });
  assert.deepEqual(at(1, 0), { reference: "1", difference: "0" });
  assert.deepEqual(at(2, 0), { reference: "2", difference: "−1" });
  assert.deepEqual(at(3, 0), { reference: "3", difference: "–" });
  assert.deepEqual(at(1, 1), { reference: "masked", difference: "–" });
  assert.deepEqual(at(3, 1), { reference: "saturated", difference: "–" });
  // A square of the image is compared with the same pixels of a finer reference.
  const binned = frameOf({ bin: 2, frame_rows: 1, frame_columns: 2, bytes: 4 }, [4122, 4122]);
  assert.deepEqual(compared(binned, reference, { x: 1, y: 1 }), { reference: "1", difference: "+9" });
  assert.deepEqual(compared(binned, reference, { x: 3, y: 0 }), { reference: "saturated", difference: "–" });
  // A coarser one says nothing of a single pixel.
  assert.equal(compared(reference, binned, { x: 0.5, y: 0.5 }).difference, "–");
  const part = frameOf({ region: [2, 0, 2, 2], frame_columns: 2, bytes: 8 }, [4112, 4112, 4112, 4112]);
  assert.deepEqual(compared(plus, part, { x: 0.5, y: 0.5 }), { reference: "–", difference: "–" });
});

test("several pixels have the largest number, or the reason that frames have", () => {
  const number = (value: number) => ({ kind: "number" as const, value });
  assert.deepEqual(largestOf([{ kind: "masked" }, number(-3), number(-5)]), number(-3));
  assert.deepEqual(largestOf([{ kind: "masked" }, { kind: "missing" }, { kind: "invalid" }]), { kind: "missing" });
  assert.deepEqual(largestOf([number(9), { kind: "saturated" }]), { kind: "saturated" });
  assert.equal(largestOf([]), null);
});

test("the frame of a reference is one message more, and its memory is its own", () => {
  const viewer = asking();
  give(viewer, { image: 15 });
  const reference = viewer.reference.value as Viewer;
  reference.take(message({ image: 15 }, CODES));
  reference.decodeWaiting();
  for (let n = 0; n < 4; n++)
    give(
      viewer,
      { image: 16 + n },
      CODES.map(() => 4999),
    );
  assert.deepEqual([...(reference.frame?.codes ?? [])], CODES);
});
