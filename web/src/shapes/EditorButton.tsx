// Opens the editor of mask and regions, and says whether something in it is not saved.

import type { JSX } from "preact";
import type { Viewer } from "../image/viewer";
import { editorOf } from "./editor";
import "./shapes.css";

export function EditorButton({ viewer }: { viewer: Viewer }): JSX.Element {
  const editor = editorOf(viewer);
  const isOpen = editor.isOpen.value;
  const isChanged = editor.draft.value.isChanged.value;
  return (
    <button
      type="button"
      class="button"
      aria-pressed={isOpen}
      title={isChanged ? "Draw a mask and regions; there are changes that are not saved" : "Draw a mask and regions"}
      onClick={() => {
        editor.isOpen.value = !isOpen;
      }}
    >
      Mask and regions
      {isChanged && (
        <span class="unsaved">
          <span aria-hidden="true">●</span>
          <span class="hidden-text">, not saved</span>
        </span>
      )}
    </button>
  );
}
