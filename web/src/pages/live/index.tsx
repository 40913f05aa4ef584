// The page Live: the image, what is known of it, and how it has been.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { PageProps } from "../../app/services";
import { ContrastPanel } from "../../image/ContrastPanel";
import { FileBar } from "../../image/FileBar";
import { ImageView } from "../../image/ImageView";
import { readShown, restore } from "../../image/permalink";
import { Toolbar } from "../../image/Toolbar";
import { type Viewer, viewerOf } from "../../image/viewer";
import { EditorPanel } from "../../shapes/EditorPanel";
import { editorOf } from "../../shapes/editor";
import { actOnKey } from "./keys";
import { followDetector } from "./overlays";
import { Strip } from "./Strip";
import { Tabs } from "./Tabs";
import "./live.css";

/** Whether a key belongs to the control that has the focus. */
function isTaken(event: KeyboardEvent): boolean {
  const { target, key } = event;
  if (!(target instanceof HTMLElement)) return false;
  if (target.closest("textarea, select, [contenteditable], input:not([type=checkbox], [type=range])")) return true;
  if (target.closest("button, summary, a, input[type=checkbox]") && (key === " " || key === "Enter")) return true;
  const moves = key.startsWith("Arrow") || key === "Home" || key === "End";
  return moves && target.closest("input, [role=tablist], .tab-content, .editor-content, .table-frame") !== null;
}

function followKeys(viewer: Viewer): () => void {
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented || isTaken(event)) return;
    if (document.querySelector("dialog[open]")) return;
    const goTo = event.key === "g" && document.querySelector<HTMLInputElement>(".goto-number");
    if (goTo) goTo.focus();
    if (goTo || actOnKey(viewer, event.key, event.shiftKey)) event.preventDefault();
  };
  window.addEventListener("keydown", press);
  return () => window.removeEventListener("keydown", press);
}

function followAddress(viewer: Viewer): () => void {
  const read = () => {
    if (location.hash.startsWith("#/live?")) restore(viewer, readShown(location.hash));
    // The menu of the pages leads to the newest images.
    else if (viewer.file.value !== null) viewer.closeFile();
  };
  // After the image has got its size, on which the place of a view depends.
  const first = requestAnimationFrame(read);
  window.addEventListener("hashchange", read);
  return () => {
    cancelAnimationFrame(first);
    window.removeEventListener("hashchange", read);
  };
}

export function LivePage({ services }: PageProps): JSX.Element {
  const viewer = viewerOf(services.connection);
  useEffect(() => followKeys(viewer), [viewer]);
  useEffect(() => followAddress(viewer), [viewer]);
  useEffect(() => followDetector(services, viewer), [services, viewer]);
  return (
    <div class="live-page">
      <h1 class="hidden-text">Live</h1>
      <div class="live-image">
        <FileBar api={services.api} viewer={viewer} />
        <Toolbar api={services.api} viewer={viewer} />
        <ImageView api={services.api} viewer={viewer} />
        <ContrastPanel viewer={viewer} />
      </div>
      {editorOf(viewer).isOpen.value ? (
        <EditorPanel services={services} viewer={viewer} />
      ) : (
        <Tabs services={services} viewer={viewer} />
      )}
      {viewer.file.value === null && <Strip services={services} viewer={viewer} />}
    </div>
  );
}
