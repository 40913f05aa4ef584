// The image with what lies above it, and what is under the pointer.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Api } from "../api/client";
import { Curves, rowsHeight } from "./Curves";
import { chosenRenderer } from "./choose";
import { installHook } from "./hook";
import { Painter } from "./painter";
import { followPointer } from "./pointer";
import { Readout } from "./Readout";
import { endReference, referenceText } from "./reference";
import type { RendererKind } from "./renderer";
import { imagesText } from "./stack";
import { isStrip } from "./view";
import type { Viewer } from "./viewer";
import { watchWith } from "./watch";
import "./image.css";

function followSize(element: HTMLElement, viewer: Viewer): () => void {
  const measure = () => {
    viewer.pixelRatio.value = window.devicePixelRatio || 1;
    // Without the border, and without the parts of pixels that the layout may have.
    const { clientWidth: width, clientHeight: height } = element;
    viewer.resize({ width, height });
  };
  const observer = new ResizeObserver(measure);
  observer.observe(element);
  window.addEventListener("resize", measure);
  measure();
  return () => {
    observer.disconnect();
    window.removeEventListener("resize", measure);
  };
}

/** Both canvases; a canvas that lost WebGL for good is replaced, as one canvas can have only one kind of context. */
function Canvases({ viewer, kind, onLost }: { viewer: Viewer; kind: RendererKind; onLost: () => void }): JSX.Element {
  const image = useRef<HTMLCanvasElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (!image.current || !overlay.current) return;
    let painter: Painter;
    try {
      painter = new Painter(viewer, image.current, overlay.current, kind, onLost);
    } catch (error) {
      if (kind === "webgl") onLost();
      else viewer.problem.value = error instanceof Error ? error.message : String(error);
      return;
    }
    const unfollow = followPointer(overlay.current, viewer);
    if (viewer.main === null) installHook(viewer, painter);
    viewer.picture = () => painter.picture();
    return () => {
      unfollow();
      painter.dispose();
      viewer.picture = null;
      if (viewer.main === null) delete window.__konkordia;
    };
  }, [viewer, kind, onLost]);
  return (
    <>
      <canvas ref={image} class="image-canvas" />
      <canvas ref={overlay} class="image-overlay" role="img" aria-label={describe(viewer)} />
    </>
  );
}

function describe(viewer: Viewer): string {
  const header = viewer.header.value;
  if (!header) return "No image";
  const images = imagesText(header);
  const name = images.charAt(0).toUpperCase() + images.slice(1);
  return `${name} of ${header.detector}, ${header.columns} by ${header.rows} pixels`;
}

/** Why there is nothing to see, or not what was asked for. */
function Notes({ viewer }: { viewer: Viewer }): JSX.Element | null {
  const note = viewer.note.value;
  if (note) {
    const close = () => {
      viewer.note.value = null;
    };
    return (
      <div class="image-note error" role="alert">
        ✕ {note}{" "}
        <button type="button" class="button" onClick={close}>
          Close
        </button>
      </div>
    );
  }
  return <FrameNotes viewer={viewer} />;
}

function FrameNotes({ viewer }: { viewer: Viewer }): JSX.Element | null {
  const missing = viewer.connection.noImage.value;
  const problem = viewer.problem.value;
  const header = viewer.header.value;
  if (problem) return <p class="image-note error">✕ The last frame cannot be shown: {problem}</p>;
  if (missing && header) {
    return (
      <p class="image-note warning">
        ⚠ {missing.detail} {missing.hint} Image {header.image} is still shown.
      </p>
    );
  }
  if (header) return null;
  return (
    <div class="image-empty">
      <p>
        <strong>{missing?.title ?? "No image yet."}</strong>
      </p>
      {missing ? (
        <p>
          {missing.detail} {missing.hint}
        </p>
      ) : (
        <p>
          Start a run on the page <a href="#/acquire">Acquire</a>, or run <code>konkordia simulate</code>.
        </p>
      )}
    </div>
  );
}

/** What the pane has, where there are two. */
function PaneName({ viewer }: { viewer: Viewer }): JSX.Element | null {
  const header = viewer.header.value;
  if (!viewer.isBesideOther() || !header) return null;
  if (viewer.main === null) return <p class="pane-name">{imagesText(header)}</p>;
  const end = () => viewer.main && endReference(viewer.main);
  return (
    <div class="pane-name">
      <span>Reference: {referenceText(header)}</span>
      <button type="button" class="button" aria-label="End comparison" title="End comparison (x)" onClick={end}>
        ✕
      </button>
    </div>
  );
}

/** One image; the one on the right has the notes. */
function Pane({ viewer }: { viewer: Viewer }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const kind = useSignal<RendererKind>(chosenRenderer());
  const giveUp = useRef(() => {
    kind.value = "2d";
  });
  useEffect(() => (place.current ? followSize(place.current, viewer) : undefined), [viewer]);
  const { image } = viewer;
  const hasCurves = image !== null && isStrip(image);
  return (
    <div class={hasCurves ? "image-frame has-curves" : "image-frame"}>
      {hasCurves && <Curves viewer={viewer} rows={image.height} />}
      <div class="image-place" ref={place} style={{ height: hasCurves ? `${rowsHeight(image.height)}px` : "" }}>
        <Canvases key={kind.value} viewer={viewer} kind={kind.value} onLost={giveUp.current} />
      </div>
      <PaneName viewer={viewer} />
      {viewer.main === null && <Notes viewer={viewer} />}
    </div>
  );
}

export function ImageView({ api, viewer }: { api: Api; viewer: Viewer }): JSX.Element {
  const reference = viewer.reference.value;
  useEffect(() => watchWith(viewer), [viewer]);
  return (
    <div class="image-view">
      <div class="image-panes">
        {/* The image itself keeps its canvas when another one comes beside it. */}
        {reference && <Pane key="reference" viewer={reference} />}
        <Pane key="image" viewer={viewer} />
      </div>
      <Readout api={api} viewer={viewer} />
    </div>
  );
}
