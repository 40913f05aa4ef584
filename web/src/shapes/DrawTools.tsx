// What is edited, and what the pointer draws; the same shapes can be added without a pointer.

import type { JSX } from "preact";
import { Button } from "../image/controls";
import type { DrawingForm, Editor } from "./editor";
import { FORM_WORDS, FORMS_OF, type ListName } from "./model";

interface EditorProps {
  editor: Editor;
}

const LISTS: readonly [ListName, string][] = [
  ["mask", "Mask"],
  ["regions", "Regions"],
];

function Lists({ editor }: EditorProps): JSX.Element {
  return (
    <fieldset class="toolbar-group" aria-label="What is edited">
      {LISTS.map(([list, words]) => (
        <Button
          key={list}
          text={`${words} (${editor.shapes[list].length})`}
          title={list === "mask" ? "Pixels that are left out" : "Parts of the image of which the analysis makes sums"}
          isPressed={editor.list.value === list}
          onPress={() => editor.showList(list)}
        />
      ))}
    </fieldset>
  );
}

const DRAWN: readonly (DrawingForm | null)[] = [null, "rectangle", "circle", "polygon"];

function Pointer({ editor }: EditorProps): JSX.Element {
  const forms = DRAWN.filter((form) => form === null || FORMS_OF[editor.list.value].includes(form));
  return (
    <fieldset class="toolbar-group" aria-label="What the pointer does">
      {forms.map((form) => (
        <Button
          key={form ?? "select"}
          text={form ? FORM_WORDS[form] : "Select"}
          title={form ? `Draw: ${FORM_WORDS[form].toLowerCase()}` : "Select, move and resize shapes"}
          isPressed={editor.drawing.value === form}
          onPress={() => editor.draw(form)}
        />
      ))}
    </fieldset>
  );
}

function Steps({ editor }: EditorProps): JSX.Element {
  const { past, future } = editor.draft.value.history.value;
  return (
    <fieldset class="toolbar-group" aria-label="Steps">
      <Button text="Undo" title="Undo (Ctrl + z)" isOff={past.length === 0} onPress={() => editor.draft.value.undo()} />
      <Button
        text="Redo"
        title="Redo (Ctrl + Shift + z)"
        isOff={future.length === 0}
        onPress={() => editor.draft.value.redo()}
      />
    </fieldset>
  );
}

function hintFor(editor: Editor): string {
  const corners = editor.corners.value.length;
  if (corners > 0) {
    return `${corners} ${corners === 1 ? "corner" : "corners"}: double click or Enter closes the polygon, Escape gives it up.`;
  }
  switch (editor.drawing.value) {
    case null:
      return "Drag a shape to move it, and its handles to resize it.";
    case "rectangle":
      return "Drag from corner to corner.";
    case "circle":
      return "Drag from the centre to the edge.";
    case "polygon":
      return "Press for each corner.";
  }
}

export function DrawTools({ editor }: EditorProps): JSX.Element {
  return (
    <div class="editor-tools">
      <div class="button-row">
        <Lists editor={editor} />
        <Steps editor={editor} />
      </div>
      <Pointer editor={editor} />
      <p class="soft" role="status">
        {hintFor(editor)}
      </p>
    </div>
  );
}
