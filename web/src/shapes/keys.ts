// The keys of the editor, and what they do.

import type { Editor } from "./editor";

/** For the list of keys. */
export const EDITOR_KEYS = [
  { key: "Arrows", does: "move the selected shape by a pixel, with Shift by 10" },
  { key: "Delete", does: "delete the selected shape" },
  { key: "Ctrl + z, Ctrl + Shift + z", does: "undo, redo" },
  { key: "Enter, double click", does: "close the polygon that is being drawn" },
  { key: "Backspace", does: "take its last corner back" },
  { key: "Escape", does: "give up what is being drawn, then draw no more, then select nothing" },
  { key: "Shift or Ctrl + drag", does: "zoom into a box, also while drawing" },
];

const MOVES: Record<string, [dx: number, dy: number]> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

const SHIFTED_PX = 10;

function withControl(editor: Editor, event: KeyboardEvent): boolean {
  const key = event.key.toLowerCase();
  if (key !== "z" && key !== "y") return false;
  const draft = editor.draft.value;
  if (key === "y" || event.shiftKey) draft.redo();
  else draft.undo();
  return true;
}

/** Does what a key means to the editor; false if it means nothing to it. */
export function actOnEditorKey(editor: Editor, event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey) return withControl(editor, event);
  if (event.altKey) return false;
  const move = MOVES[event.key];
  const far = event.shiftKey ? SHIFTED_PX : 1;
  if (move) return editor.moveBy(far * move[0], far * move[1]);
  const corners = editor.corners.value;
  switch (event.key) {
    case "Escape":
      return editor.giveUp();
    case "Enter":
      if (corners.length === 0) return false;
      if (corners.length >= 3) editor.closePolygon();
      return true;
    case "Backspace":
      if (corners.length > 0) editor.corners.value = corners.slice(0, -1);
      else editor.remove();
      return true;
    case "Delete":
      editor.remove();
      return true;
    default:
      return false;
  }
}

/** Keys are those of the control that has the focus where somebody writes or chooses. */
function isOfControl(event: KeyboardEvent): boolean {
  const { target } = event;
  if (document.querySelector("dialog[open]")) return true;
  if (event.key === "Escape" && document.querySelector("details.menu[open]")) return true;
  if (!(target instanceof HTMLElement)) return false;
  if (target.closest("input, textarea, select, [contenteditable]")) return true;
  return event.key.startsWith("Arrow") && target.closest("[role=tablist]") !== null;
}

/** Before all others, so that a key means one thing only. Until the function that it gives is called. */
export function followEditorKeys(editor: Editor): () => void {
  const press = (event: KeyboardEvent) => {
    if (isOfControl(event) || !actOnEditorKey(editor, event)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  window.addEventListener("keydown", press, { capture: true });
  return () => window.removeEventListener("keydown", press, { capture: true });
}
