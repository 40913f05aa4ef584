import assert from "node:assert/strict";
import { test } from "node:test";
import { signal } from "@preact/signals";
import { ApiProblem, type CalibrationMapQuery, type FramePart } from "../../api/client";
import type { Connection, Contact, DetectorStatus } from "../../live/types";
import { MapSource } from "./mapSource";

const LIVE = {
  contact: signal<Contact>({ kind: "connecting" }),
  detectors: signal<DetectorStatus[] | null>(null),
  detector: signal<string | null>("jf"),
} as unknown as Connection;

type Asked = [map: CalibrationMapQuery, part: FramePart, answer: (message: ArrayBuffer | ApiProblem) => void];

function source(): { source: MapSource; asked: Asked[] } {
  const asked: Asked[] = [];
  const calibrationMap = (_: string, map: CalibrationMapQuery, part: FramePart): Promise<ArrayBuffer> =>
    new Promise((resolve, reject) => {
      asked.push([map, part, (answer) => (answer instanceof ApiProblem ? reject(answer) : resolve(answer))]);
    });
  return { source: new MapSource(LIVE, { calibrationMap }), asked };
}

const NOISE: CalibrationMapQuery = { quantity: "noise", stage: 0, minus_previous: false };
const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

test("only the newest answer is shown", async () => {
  const { source: maps, asked } = source();
  maps.show(NOISE, "a");
  assert.equal(asked.length, 0);
  maps.watchFrames({ region: null, pixels_max: 5000 });
  maps.watchFrames({ region: [1, 2, 3, 4], pixels_max: 5000 });
  assert.deepEqual(
    asked.map(([, part]) => part),
    [{ pixels_max: 5000 }, { region: "1,2,3,4", pixels_max: 5000 }],
  );
  const [old, newest] = [new ArrayBuffer(1), new ArrayBuffer(2)];
  asked[1]?.[2](newest);
  await settled();
  asked[0]?.[2](old);
  await settled();
  assert.equal(maps.frame.value, newest);
});

test("another map sets the contrast anew, another part of it does not", async () => {
  const { source: maps, asked } = source();
  maps.show(NOISE, "a");
  maps.watchFrames({});
  asked[0]?.[2](new ArrayBuffer(1));
  await settled();
  maps.viewer.contrast.value = { low: 1, high: 2 };
  maps.watchFrames({ region: [0, 0, 1, 1] });
  asked[1]?.[2](new ArrayBuffer(1));
  await settled();
  assert.deepEqual(maps.viewer.contrast.value, { low: 1, high: 2 });
  maps.show({ ...NOISE, stage: 1 }, "a");
  asked[2]?.[2](new ArrayBuffer(1));
  await settled();
  assert.equal(maps.viewer.contrast.value, null);
});

test("a map that is not there says why, and nothing else is shown", async () => {
  const { source: maps, asked } = source();
  maps.watchFrames({});
  maps.show(NOISE, "a");
  asked[0]?.[2](new ArrayBuffer(1));
  await settled();
  maps.show({ ...NOISE, stage: 2 }, "a");
  asked[1]?.[2](new ApiProblem({ code: "no_calibration", detail: "no noise of G2", hint: "take it", status: 404 }));
  await settled();
  assert.equal(maps.frame.value, null);
  assert.deepEqual(maps.noImage.value, {
    title: "There is no such map.",
    detail: "no noise of G2",
    hint: "take it",
  });
});
