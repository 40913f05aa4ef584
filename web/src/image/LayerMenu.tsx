// What lies above the image, and one more ring.

import type { JSX } from "preact";
import type { SpecialKind } from "./code16";
import { SPECIAL_COLOURS, SPECIAL_WORDS } from "./colours";
import { Check, Menu } from "./controls";
import { automaticSpacings, finestSpacing } from "./geometry";
import { modulesOf } from "./modules";
import type { Layers, Viewer } from "./viewer";

interface LayerProps {
  viewer: Viewer;
}

type Needs = "geometry" | "modules" | "regions" | null;

const LAYERS: { name: keyof Layers; text: string; needs: Needs }[] = [
  { name: "spots", text: "Spots: ○ indexed, □ not indexed (s)", needs: null },
  { name: "rings", text: "Resolution rings (r)", needs: "geometry" },
  { name: "ice", text: "Ice rings (e)", needs: "geometry" },
  { name: "beam", text: "Beam centre (b)", needs: "geometry" },
  { name: "modules", text: "Modules with their numbers (o)", needs: "modules" },
  { name: "regions", text: "Regions with their names (p)", needs: "regions" },
];

/** Whether there is what a layer shows. */
function has(viewer: Viewer, needs: Needs): boolean {
  const header = viewer.header.value;
  switch (needs) {
    case null:
      return true;
    case "geometry":
      return Boolean(header?.geometry);
    case "modules":
      return header !== null && modulesOf(viewer.modules.value, header).length > 0;
    case "regions":
      return (viewer.shapes.value?.regions.length ?? 0) > 0;
  }
}

/** Fine spacings have room on this scale. */
const RING_MOST_ANGSTROM = 50;

function RingFields({ viewer, finest, chosen }: LayerProps & { finest: number; chosen: number }): JSX.Element {
  const most = Math.max(RING_MOST_ANGSTROM, 2 * finest);
  const set = (value: number) => {
    if (!(value >= finest && value <= most)) return;
    viewer.ringFollows.value = false;
    viewer.ringAngstrom.value = value;
  };
  return (
    <div class="ring-fields">
      <input
        type="range"
        aria-label="Spacing of the ring"
        aria-valuetext={`${chosen.toFixed(2)} angstrom`}
        min={Math.log(finest)}
        max={Math.log(most)}
        step={0.002}
        value={Math.log(chosen)}
        onInput={(event) => set(Math.exp(Number(event.currentTarget.value)))}
      />
      <label class="contrast-field">
        <input
          class="number-input"
          type="number"
          step="any"
          aria-label="Spacing of the ring, angstrom"
          value={chosen.toFixed(2)}
          onChange={(event) => set(Number(event.currentTarget.value))}
        />
        Å
      </label>
    </div>
  );
}

/** One more ring, at a spacing or through the pointer. */
function Ring({ viewer }: LayerProps): JSX.Element | null {
  const header = viewer.header.value;
  const size = viewer.image;
  const finest = header?.geometry && size ? finestSpacing(header.geometry, size) : null;
  if (!header?.geometry || !size || finest === null) return null;
  const chosen = viewer.ringAngstrom.value;
  const first = automaticSpacings(header.geometry, size).at(-1) ?? finest;
  const setOn = (isOn: boolean) => {
    viewer.ringFollows.value = false;
    viewer.ringAngstrom.value = isOn ? first : null;
  };
  return (
    <div class="ring-slider">
      <Check
        text={chosen === null ? "One more ring" : `One more ring: ${chosen.toFixed(2)} Å`}
        isOn={chosen !== null}
        onChange={setOn}
      />
      {chosen !== null && <RingFields viewer={viewer} finest={finest} chosen={chosen} />}
      <Check
        text="A ring through the pointer (d)"
        isOn={viewer.ringFollows.value}
        onChange={() => viewer.toggleRing()}
      />
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

export function LayerMenu({ viewer }: LayerProps): JSX.Element {
  const layers = viewer.layers.value;
  const look = viewer.look.value;
  const noSpots = layers.spots ? viewer.header.value?.no_spots : null;
  return (
    <Menu text="Layers">
      {LAYERS.map(({ name, text, needs }) => (
        <Check
          key={name}
          text={text}
          isOn={layers[name]}
          isOff={!has(viewer, needs)}
          onChange={(isOn) => {
            viewer.layers.value = { ...layers, [name]: isOn };
          }}
        />
      ))}
      <Check
        text="Masked, missing and invalid pixels in colours of their own, and the drawn mask (m)"
        isOn={look.marksSpecial}
        onChange={(marksSpecial) => {
          viewer.look.value = { ...look, marksSpecial };
        }}
      />
      {noSpots && <p class="soft">No spots are drawn: {noSpots}.</p>}
      <Legend />
      <Ring viewer={viewer} />
      {!has(viewer, "geometry") && (
        <p class="soft">Rings need the geometry: beam centre, distance, pixel size and energy.</p>
      )}
    </Menu>
  );
}
