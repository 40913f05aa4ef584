// The image with what lies above it, and what is under the pointer.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { chosenRenderer } from "./choose";
import { installHook } from "./hook";
import { Painter } from "./painter";
import { followPointer } from "./pointer";
import { type Reading, readingAt } from "./reading";
import type { RendererKind } from "./renderer";
import { toImage } from "./view";
import type { Viewer } from "./viewer";
import { watchWith } from "./watch";
import "./image.css";

function followSize(element: HTMLElement, viewer: Viewer): () => void {
  const measure = () => {
    viewer.pixelRatio.value = window.devicePixelRatio || 1;
    const { width, height } = element.getBoundingClientRect();
    const before = viewer.canvas.value;
    if (before.width !== width || before.height !== height) viewer.canvas.value = { width, height };
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
    installHook(viewer, painter);
    viewer.picture = () => painter.picture();
    return () => {
      unfollow();
      painter.dispose();
      viewer.picture = null;
      delete window.__konkordia;
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
  return `Image ${header.image} of ${header.detector}, ${header.columns} by ${header.rows} pixels`;
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
        <strong>No image yet.</strong>
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

function Numbers({ reading }: { reading: Reading }): JSX.Element {
  const { column, row, value, scattering } = reading;
  const digits = (number: number | null | undefined, count: number) => (number == null ? "–" : number.toFixed(count));
  return (
    <>
      <span class="readout-place">
        x {column} y {row}
      </span>
      <strong class="readout-value">{value}</strong>
      <span>d {digits(scattering?.dAngstrom, 3)} Å</span>
      <span>q {digits(scattering?.qPerAngstrom, 4)} 1/Å</span>
      <span>2θ {digits(scattering?.twoThetaDeg, 3)}°</span>
    </>
  );
}

function Readout({ viewer }: { viewer: Viewer }): JSX.Element {
  const header = viewer.header.value;
  const pointer = viewer.pointer.value;
  const view = viewer.actualView();
  const reading = pointer && view && viewer.frame && header ? readingAt(viewer.frame, toImage(view, pointer)) : null;
  return (
    <div class="readout">
      {reading ? (
        <Numbers reading={reading} />
      ) : (
        <span class="soft">Move the pointer over the image to read values.</span>
      )}
      <span class="readout-image">{header ? `image ${header.image} · run ${header.run} · ${header.status}` : "–"}</span>
    </div>
  );
}

export function ImageView({ viewer }: { viewer: Viewer }): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const kind = useSignal<RendererKind>(chosenRenderer());
  const giveUp = useRef(() => {
    kind.value = "2d";
  });
  useEffect(() => (frame.current ? followSize(frame.current, viewer) : undefined), [viewer]);
  useEffect(() => watchWith(viewer), [viewer]);
  return (
    <div class="image-view">
      <div class="image-frame" ref={frame}>
        <Canvases key={kind.value} viewer={viewer} kind={kind.value} onLost={giveUp.current} />
        <Notes viewer={viewer} />
      </div>
      <Readout viewer={viewer} />
    </div>
  );
}
