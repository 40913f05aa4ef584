import assert from "node:assert";
import { test } from "node:test";
import { signal } from "@preact/signals";
import type { Viewer } from "../image/viewer";
import { Editor } from "./editor";
import { actOnEditorKey } from "./keys";
import { ShapeTool } from "./tool";

/** An image of which a pixel is 2 dots of the screen wide. */
function made(): { editor: Editor; tool: ShapeTool } {
  const viewer = {
    connection: { detector: signal("d") },
    canvas: signal({ width: 200, height: 160 }),
    actualView: () => ({ x: 0, y: 0, scale: 2 }),
    beam: () => null,
  };
  const editor = new Editor(viewer as unknown as Viewer);
  return { editor, tool: new ShapeTool(editor) };
}

let now = 0;
/** Each a second after the one before, if not sooner. */
const event = (fields: Partial<PointerEvent> = {}, afterMs = 1000) => {
  now += afterMs;
  return { shiftKey: false, ctrlKey: false, buttons: 1, timeStamp: now, ...fields } as PointerEvent;
};
const at = (x: number, y: number) => ({ x, y });

function drag(tool: ShapeTool, from: [number, number], to: [number, number]): boolean {
  const isTaken = tool.press(at(...from), event());
  tool.move(at((from[0] + to[0]) / 2, (from[1] + to[1]) / 2), event());
  tool.move(at(...to), event());
  tool.release(at(...to));
  return isTaken;
}

const key = (name: string, fields: Partial<KeyboardEvent> = {}) =>
  ({ key: name, shiftKey: false, ctrlKey: false, altKey: false, metaKey: false, ...fields }) as KeyboardEvent;
const mask = (editor: Editor) => editor.draft.value.history.value.now.mask;

test("a drawn rectangle is one step, and is selected", () => {
  const { editor, tool } = made();
  editor.draw("rectangle");
  assert.ok(drag(tool, [10, 20], [30.4, 40]));
  assert.deepEqual(mask(editor), [{ form: "rectangle", column: 10, row: 20, columns: 21, rows: 20 }]);
  assert.deepEqual(editor.selected, { list: "mask", index: 0 });
  editor.draft.value.undo();
  assert.deepEqual([mask(editor), editor.selected], [[], null]);
});

test("a click draws nothing, and with Shift the image is zoomed as always", () => {
  const { editor, tool } = made();
  editor.draw("circle");
  drag(tool, [10, 20], [11, 20]);
  assert.equal(tool.press(at(5, 5), event({ shiftKey: true })), false);
  assert.deepEqual(mask(editor), []);
});

test("a shape is selected, moved as a whole and resized at its corner", () => {
  const { editor, tool } = made();
  editor.add({ form: "rectangle", column: 10, row: 10, columns: 40, rows: 40 });
  editor.select(null);
  drag(tool, [30, 30], [35, 32.2]);
  assert.deepEqual(mask(editor), [{ form: "rectangle", column: 15, row: 12, columns: 40, rows: 40 }]);
  drag(tool, [55, 52], [60, 60]);
  assert.deepEqual(mask(editor), [{ form: "rectangle", column: 15, row: 12, columns: 45, rows: 48 }]);
  assert.equal(editor.draft.value.history.value.past.length, 3);
  assert.equal(tool.press(at(90, 75), event()), false, "beside all shapes, the image moves");
  assert.equal(editor.selected, null);
});

test("a drag that is lost changes nothing", () => {
  const { editor, tool } = made();
  editor.add({ form: "rectangle", column: 10, row: 10, columns: 40, rows: 40 });
  tool.press(at(30, 30), event());
  tool.move(at(40, 30), event());
  assert.ok(editor.draft.value.preview.value);
  tool.move(at(45, 30), event({ buttons: 0 }));
  assert.equal(editor.draft.value.preview.value, null);
  tool.release(at(45, 30));
  assert.deepEqual(mask(editor), [{ form: "rectangle", column: 10, row: 10, columns: 40, rows: 40 }]);
});

test("a polygon is closed by a double click, which is no corner of it", () => {
  const { editor, tool } = made();
  editor.draw("polygon");
  for (const [x, y] of [
    [10, 10],
    [50, 10],
    [50, 40],
  ] as const)
    tool.press(at(x, y), event());
  tool.press(at(50.3, 40), event({}, 100));
  assert.deepEqual(mask(editor), [
    {
      form: "polygon",
      points: [
        [10, 10],
        [50, 10],
        [50, 40],
      ],
    },
  ]);
  assert.deepEqual([editor.corners.value, editor.drawing.value], [[], "polygon"]);
});

test("a polygon is closed at its first corner and by Enter, and given up by Escape", () => {
  const { editor, tool } = made();
  const points = [
    [10, 10],
    [50, 10],
    [50, 40],
  ] as const;
  editor.draw("polygon");
  for (const [x, y] of [...points, [11, 10]] as const) tool.press(at(x, y), event());
  assert.equal(mask(editor).length, 1);
  editor.select(null);
  for (const [x, y] of points) tool.press(at(x + 20, y + 20), event());
  assert.ok(actOnEditorKey(editor, key("Enter")));
  assert.equal(mask(editor).length, 2);
  editor.select(null);
  for (const [x, y] of points) tool.press(at(x, y), event());
  assert.ok(actOnEditorKey(editor, key("Backspace")));
  assert.equal(editor.corners.value.length, 2);
  assert.ok(actOnEditorKey(editor, key("Escape")));
  assert.deepEqual([mask(editor).length, editor.corners.value, editor.drawing.value], [2, [], "polygon"]);
  actOnEditorKey(editor, key("Escape"));
  assert.equal(editor.drawing.value, null);
});

test("arrows move by a pixel or ten, in one step, and nothing where nothing is selected", () => {
  const { editor } = made();
  assert.equal(actOnEditorKey(editor, key("ArrowLeft")), false);
  editor.add({ form: "circle", x_px: 20, y_px: 20, radius_px: 5 });
  for (let n = 0; n < 3; n++) actOnEditorKey(editor, key("ArrowRight"));
  actOnEditorKey(editor, key("ArrowUp", { shiftKey: true }));
  assert.deepEqual(mask(editor), [{ form: "circle", x_px: 23, y_px: 10, radius_px: 5 }]);
  actOnEditorKey(editor, key("z", { ctrlKey: true }));
  assert.deepEqual(mask(editor), [{ form: "circle", x_px: 20, y_px: 20, radius_px: 5 }]);
  actOnEditorKey(editor, key("Z", { ctrlKey: true, shiftKey: true }));
  assert.deepEqual(mask(editor), [{ form: "circle", x_px: 23, y_px: 10, radius_px: 5 }]);
  actOnEditorKey(editor, key("Delete"));
  assert.deepEqual(mask(editor), []);
});

test("each detector has its own shapes", () => {
  const { editor } = made();
  editor.addForm("rectangle");
  const detector = editor.viewer.connection.detector;
  detector.value = "other";
  assert.deepEqual([editor.shapes.mask.length, editor.selected], [0, null]);
  detector.value = "d";
  assert.deepEqual([editor.shapes.mask.length, editor.hasUnsaved()], [1, true]);
});
