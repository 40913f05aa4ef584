// The editor of mask and regions, beside the image.

import { effect, untracked } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import { isCurrent, type Services } from "../app/services";
import type { Viewer } from "../image/viewer";
import { DrawTools } from "./DrawTools";
import { type Editor, editorOf } from "./editor";
import { FileButtons } from "./FileButtons";
import { followEditorKeys } from "./keys";
import { SavePart } from "./SavePart";
import { ShapeList } from "./ShapeList";
import { ShapeTool } from "./tool";
import "./shapes.css";

interface PanelProps {
  services: Services;
  viewer: Viewer;
}

/** The pointer and the keys are those of the editor while it is open. */
function useHands(editor: Editor, viewer: Viewer): void {
  const tool = useMemo(() => new ShapeTool(editor), [editor]);
  useEffect(() => {
    viewer.tool.value = tool;
    const unfollow = followEditorKeys(editor);
    return () => {
      unfollow();
      editor.draw(null);
      if (viewer.tool.peek() === tool) viewer.tool.value = null;
    };
  }, [editor, viewer, tool]);
}

/** Asks what the service has when the editor is opened, and follows what the page learns of it afterwards. */
function useSaved(editor: Editor, { services, viewer }: PanelProps): void {
  const detector = services.connection.detector.value;
  const mayAsk = isCurrent(services.connection);
  useEffect(
    () =>
      effect(() => {
        const found = viewer.shapes.value;
        if (found && found.detector === detector) untracked(() => editor.draft.value.receive(found));
      }),
    [editor, viewer, detector],
  );
  useEffect(() => {
    if (detector === null || !mayAsk) return;
    editor.draft
      .peek()
      .load(services.api, detector)
      .then((found) => {
        if (found && services.connection.detector.peek() === detector) viewer.shapes.value = found;
      });
  }, [editor, services, viewer, detector, mayAsk]);
}

export function EditorPanel({ services, viewer }: PanelProps): JSX.Element {
  const editor = editorOf(viewer);
  useHands(editor, viewer);
  useSaved(editor, { services, viewer });
  const close = () => {
    editor.isOpen.value = false;
  };
  return (
    <aside class="live-side editor" aria-label="Mask and regions">
      <div class="editor-head">
        <h2>Mask and regions</h2>
        <button type="button" class="button" onClick={close}>
          Close
        </button>
      </div>
      <DrawTools editor={editor} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <section class="editor-content" aria-label="Shapes" tabIndex={0}>
        {viewer.file.value !== null && (
          <p class="soft">The image is one of a file; the shapes are those of the detector.</p>
        )}
        <ShapeList editor={editor} />
        <FileButtons editor={editor} detector={services.connection.detector.value} />
      </section>
      <SavePart services={services} editor={editor} />
    </aside>
  );
}
