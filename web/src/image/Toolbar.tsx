// The buttons above the image: which image, which part of it, what lies above it, and what to keep of it.

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Api } from "../api/client";
import { CopyButton } from "../app/CopyButton";
import type { SpecialKind } from "./code16";
import { SPECIAL_COLOURS, SPECIAL_WORDS } from "./colours";
import { automaticSpacings, finestSpacing } from "./geometry";
import { shownBy, writeShown } from "./permalink";
import { savePicture, savePixels } from "./save";
import { centreOf, toScreen, zoomed } from "./view";
import type { Layers, Viewer } from "./viewer";

interface ToolbarProps {
  viewer: Viewer;
}

interface WithApi extends ToolbarProps {
  api: Api;
}

interface ButtonProps {
  text: string;
  title: string;
  onPress: () => void;
  isPressed?: boolean;
  isOff?: boolean;
}

function Button({ text, title, onPress, isPressed, isOff = false }: ButtonProps): JSX.Element {
  const pressed = isPressed === undefined ? {} : { "aria-pressed": isPressed };
  // Signs are no words: a screen reader gets the title.
  const label = /[a-z0-9]/i.test(text) ? {} : { "aria-label": title };
  return (
    <button type="button" class="button" title={title} disabled={isOff} onClick={onPress} {...pressed} {...label}>
      {text}
    </button>
  );
}

function GoTo({ viewer }: ToolbarProps): JSX.Element {
  // What somebody writes is not overwritten by the next frame.
  const written = useSignal<string | null>(null);
  const image = viewer.header.value?.image;
  const go = (event: Event) => {
    event.preventDefault();
    if (written.value !== null && /^\d+$/.test(written.value)) viewer.goTo(Number(written.value));
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  };
  return (
    <form class="toolbar-goto" onSubmit={go}>
      <input
        class="goto-number"
        inputMode="numeric"
        aria-label="Number of the image"
        title="Go to this image (g)"
        placeholder="–"
        value={written.value ?? image ?? ""}
        onFocus={(event) => {
          written.value = event.currentTarget.value;
          event.currentTarget.select();
        }}
        onInput={(event) => {
          written.value = event.currentTarget.value;
        }}
        onBlur={() => {
          written.value = null;
        }}
      />
    </form>
  );
}

function Images({ viewer }: ToolbarProps): JSX.Element {
  const source = viewer.source.value;
  const ring = viewer.connection.ring.value;
  const hasImage = viewer.header.value !== null;
  return (
    <fieldset class="toolbar-group" aria-label="Which image">
      <Button
        text={source === "latest" ? "❚❚ Freeze" : "▶ Live"}
        title={source === "latest" ? "Keep this image (space)" : "Show the newest images (space)"}
        isOff={source === "latest" && !hasImage}
        onPress={() => viewer.toggleFreeze()}
      />
      <Button
        text="Hits"
        title="Show the newest image that is a hit (h)"
        isPressed={source === "hit"}
        onPress={() => {
          viewer.source.value = source === "hit" ? "latest" : "hit";
        }}
      />
      <Button
        text="|◀"
        title="Oldest image that is kept (Home)"
        isOff={!ring}
        onPress={() => ring && viewer.goTo(ring.first)}
      />
      <Button text="◀" title="Image before (←)" isOff={!hasImage} onPress={() => viewer.step(-1)} />
      <GoTo viewer={viewer} />
      <Button text="▶" title="Image after (→)" isOff={!hasImage} onPress={() => viewer.step(1)} />
      <Button
        text="▶|"
        title="Newest image, and stay there (End)"
        isOff={!ring}
        onPress={() => ring && viewer.goTo(ring.last)}
      />
    </fieldset>
  );
}

export function zoomBy(viewer: Viewer, factor: number): void {
  viewer.changeView((view, canvas) => zoomed(view, toScreen(view, centreOf(view, canvas)), factor));
}

function Views({ viewer }: ToolbarProps): JSX.Element {
  const isOff = viewer.header.value === null;
  return (
    <fieldset class="toolbar-group" aria-label="Which part of it">
      <Button text="−" title="Zoom out (wheel)" isOff={isOff} onPress={() => zoomBy(viewer, 1 / 1.5)} />
      <Button text="+" title="Zoom in (wheel)" isOff={isOff} onPress={() => zoomBy(viewer, 1.5)} />
      <Button text="Fit" title="All of the image (0, or double click)" isOff={isOff} onPress={() => viewer.fit()} />
      <Button
        text="1:1"
        title="One pixel for each dot of the screen (1)"
        isOff={isOff}
        onPress={() => viewer.oneToOne()}
      />
      <Button
        text="Beam"
        title={viewer.beam() ? "Go to the beam centre (z)" : "The beam centre is not known"}
        isOff={!viewer.beam()}
        onPress={() => viewer.showBeam()}
      />
    </fieldset>
  );
}

/** A button that opens more; closed by Escape and by a press elsewhere. */
function Menu({ text, children }: { text: string; children: ComponentChildren }): JSX.Element {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const elsewhere = (event: Event) => {
      if (menu.current?.open && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    const close = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !menu.current?.open) return;
      menu.current.open = false;
      menu.current.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", elsewhere);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", elsewhere);
      document.removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details class="menu" ref={menu}>
      <summary class="button">{text} ▾</summary>
      <div class="menu-content">{children}</div>
    </details>
  );
}

const LAYERS: { name: keyof Layers; text: string; needsGeometry: boolean }[] = [
  { name: "spots", text: "Spots: ○ indexed, □ not indexed (s)", needsGeometry: false },
  { name: "rings", text: "Resolution rings (r)", needsGeometry: true },
  { name: "ice", text: "Ice rings (e)", needsGeometry: true },
  { name: "beam", text: "Beam centre (b)", needsGeometry: true },
];

interface CheckProps {
  text: string;
  isOn: boolean;
  isOff?: boolean;
  onChange: (isOn: boolean) => void;
}

function Check({ text, isOn, isOff = false, onChange }: CheckProps): JSX.Element {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={isOn}
        disabled={isOff}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      {text}
    </label>
  );
}

/** The ring that follows a slider, on a scale on which fine spacings have room. */
function RingSlider({ viewer }: ToolbarProps): JSX.Element | null {
  const header = viewer.header.value;
  const size = viewer.image;
  const finest = header?.geometry && size ? finestSpacing(header.geometry, size) : null;
  if (!header?.geometry || !size || finest === null) return null;
  const chosen = viewer.ringAngstrom.value;
  const first = automaticSpacings(header.geometry, size).at(-1) ?? finest;
  const set = (value: number | null) => {
    viewer.ringAngstrom.value = value;
  };
  return (
    <div class="ring-slider">
      <Check
        text={chosen === null ? "One more ring" : `One more ring: ${chosen.toFixed(2)} Å`}
        isOn={chosen !== null}
        onChange={(isOn) => set(isOn ? first : null)}
      />
      {chosen !== null && (
        <input
          type="range"
          aria-label="Spacing of the ring"
          aria-valuetext={`${chosen.toFixed(2)} angstrom`}
          min={Math.log(finest)}
          max={Math.log(Math.max(50, 2 * finest))}
          step={0.002}
          value={Math.log(chosen)}
          onInput={(event) => set(Math.exp(Number(event.currentTarget.value)))}
        />
      )}
    </div>
  );
}

function Legend(): JSX.Element {
  const kinds = Object.keys(SPECIAL_COLOURS) as SpecialKind[];
  return (
    <ul class="legend" aria-label="Pixels without a number">
      {kinds.map((kind) => (
        <li key={kind}>
          <span class={`legend-box ${kind}`} aria-hidden="true" />
          {SPECIAL_WORDS[kind]}
        </li>
      ))}
    </ul>
  );
}

function LayerMenu({ viewer }: ToolbarProps): JSX.Element {
  const layers = viewer.layers.value;
  const look = viewer.look.value;
  const hasGeometry = Boolean(viewer.header.value?.geometry);
  return (
    <Menu text="Layers">
      {LAYERS.map(({ name, text, needsGeometry }) => (
        <Check
          key={name}
          text={text}
          isOn={layers[name]}
          isOff={needsGeometry && !hasGeometry}
          onChange={(isOn) => {
            viewer.layers.value = { ...layers, [name]: isOn };
          }}
        />
      ))}
      <Check
        text="Masked, missing and invalid pixels in colours of their own (m)"
        isOn={look.marksSpecial}
        onChange={(marksSpecial) => {
          viewer.look.value = { ...look, marksSpecial };
        }}
      />
      <Legend />
      <RingSlider viewer={viewer} />
      {!hasGeometry && <p class="soft">Rings need the geometry: beam centre, distance, pixel size and energy.</p>}
    </Menu>
  );
}

function Permalink({ viewer }: ToolbarProps): JSX.Element {
  const link = new URL(`#/live?${writeShown(shownBy(viewer))}`, document.baseURI);
  return <CopyButton text={link.href} label="Copy link" />;
}

function SaveMenu({ api, viewer }: WithApi): JSX.Element {
  return (
    <Menu text="Save">
      <Button
        text="PNG: what is seen"
        title="The picture with what lies above it"
        onPress={() => savePicture(viewer)}
      />
      <Button
        text="TIFF: all pixels"
        title="The numbers in their own type"
        onPress={() => savePixels(api, viewer, "tiff")}
      />
      <Button
        text="npy: all pixels"
        title="The numbers in their own type, for numpy.load"
        onPress={() => savePixels(api, viewer, "npy")}
      />
      <Permalink viewer={viewer} />
    </Menu>
  );
}

export function Toolbar({ api, viewer }: WithApi): JSX.Element {
  return (
    <section class="toolbar" aria-label="Image">
      <Images viewer={viewer} />
      <Views viewer={viewer} />
      <LayerMenu viewer={viewer} />
      <SaveMenu api={api} viewer={viewer} />
    </section>
  );
}
