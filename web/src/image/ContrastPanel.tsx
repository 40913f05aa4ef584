// Contrast by histogram, two handles and numbers; scale and colour map.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { MAP_NAMES, type MapName } from "./colours";
import { type Axis, axisFor, barsOf, countCodes, placeOnAxis, rangeOf, valueOnAxis } from "./histogram";
import type { Contrast } from "./lut";
import type { Viewer } from "./viewer";

const RENEW_MS = 500;
const STEPS = 1000;
const BARS = 200;

const short = (value: number) => String(Number(value.toPrecision(4)));

function drawBars(canvas: HTMLCanvasElement, bars: Float64Array): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  canvas.width = bars.length;
  context.fillStyle = getComputedStyle(canvas).color;
  for (let n = 0; n < bars.length; n++) {
    const height = (bars[n] as number) * canvas.height;
    context.fillRect(n, canvas.height - height, 1, height);
  }
}

/** Renews the histogram while the panel is there, seldom enough to cost nothing. */
function useHistogram(viewer: Viewer) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = useSignal<Axis>({ low: 0, high: 16, unit: 1 });
  useEffect(() => {
    const bars = new Float64Array(BARS);
    let seen: unknown = null;
    let known: { axis: Axis; kind: string } | null = null;
    const renew = () => {
      const { frame } = viewer;
      if (!frame || frame === seen || document.hidden || !canvas.current) return;
      seen = frame;
      const { coding, detector } = frame.header;
      const counted = countCodes(frame.codes);
      const { low, high } = viewer.actualContrast();
      const kind = `${detector} ${coding}`;
      const before = known?.kind === kind ? known.axis : null;
      known = { axis: axisFor([low, high, ...(rangeOf(counted, coding) ?? [])], coding, before), kind };
      barsOf(counted, coding, known.axis, bars);
      drawBars(canvas.current, bars);
      if (JSON.stringify(known.axis) !== JSON.stringify(axis.value)) axis.value = known.axis;
    };
    const timer = setInterval(renew, RENEW_MS);
    renew();
    return () => clearInterval(timer);
  }, [viewer, axis]);
  return { canvas, axis };
}

interface EndProps {
  viewer: Viewer;
  end: keyof Contrast;
  axis: Axis;
}

const NAMES = { low: "Lowest value", high: "Highest value" };

function moved(viewer: Viewer, end: keyof Contrast, value: number): void {
  const contrast = { ...viewer.actualContrast(), [end]: value };
  // The other end gives way, so that a handle never sticks.
  const apart = viewer.header.value?.coding !== "count" ? Math.max(Math.abs(value) * 1e-3, 1e-9) : 1;
  if (contrast.high <= contrast.low)
    contrast[end === "low" ? "high" : "low"] = value + (end === "low" ? apart : -apart);
  viewer.setContrast(contrast);
}

function Handle({ viewer, end, axis }: EndProps): JSX.Element {
  const value = viewer.actualContrast()[end];
  const isCount = viewer.header.value?.coding === "count";
  const set = (text: string) => {
    const chosen = valueOnAxis(Number(text) / STEPS, axis);
    moved(viewer, end, isCount ? Math.round(chosen) : Number(chosen.toPrecision(4)));
  };
  return (
    <input
      type="range"
      class={`contrast-handle ${end}`}
      min={0}
      max={STEPS}
      value={Math.round(placeOnAxis(value, axis) * STEPS)}
      aria-label={NAMES[end]}
      aria-valuetext={short(value)}
      onInput={(event) => set(event.currentTarget.value)}
    />
  );
}

function Field({ viewer, end }: Omit<EndProps, "axis">): JSX.Element {
  const set = (text: string) => {
    const value = Number(text);
    if (text.trim() !== "" && Number.isFinite(value)) moved(viewer, end, value);
  };
  return (
    <label class="contrast-field">
      <span>{end === "low" ? "From" : "To"}</span>
      <input
        class="number-input"
        type="number"
        step="any"
        value={viewer.contrast.value ? short(viewer.contrast.value[end]) : ""}
        placeholder="–"
        aria-label={NAMES[end]}
        onChange={(event) => set(event.currentTarget.value)}
      />
    </label>
  );
}

function Colours({ viewer }: { viewer: Viewer }): JSX.Element {
  const look = viewer.look.value;
  const isLog = look.scale === "log";
  return (
    <>
      <button
        type="button"
        class="button"
        aria-pressed={isLog}
        title="Logarithmic scale (l)"
        onClick={() => {
          viewer.look.value = { ...look, scale: isLog ? "linear" : "log" };
        }}
      >
        Log
      </button>
      <label class="contrast-field">
        <span>Colours</span>
        <select
          class="select"
          value={look.map}
          onChange={(event) => {
            viewer.look.value = { ...look, map: event.currentTarget.value as MapName };
          }}
        >
          {MAP_NAMES.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <button
        type="button"
        class="button"
        aria-pressed={look.isInverted}
        title="Exchange bright and dark (i)"
        onClick={() => {
          viewer.look.value = { ...look, isInverted: !look.isInverted };
        }}
      >
        Invert
      </button>
    </>
  );
}

export function ContrastPanel({ viewer }: { viewer: Viewer }): JSX.Element {
  const { canvas, axis } = useHistogram(viewer);
  return (
    <section class="contrast" aria-label="Contrast">
      <div class="contrast-slider">
        <canvas ref={canvas} class="contrast-bars" height={40} />
        <Handle viewer={viewer} end="low" axis={axis.value} />
        <Handle viewer={viewer} end="high" axis={axis.value} />
      </div>
      <div class="contrast-row">
        <Field viewer={viewer} end="low" />
        <Field viewer={viewer} end="high" />
        <button
          type="button"
          class="button"
          title="Set the contrast by this image: 0.5 to 99.5 percent of its values (a)"
          onClick={() => viewer.autoContrast()}
        >
          Auto
        </button>
        <Colours viewer={viewer} />
      </div>
    </section>
  );
}
