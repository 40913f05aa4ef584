// What the strip looks like: its choices left, the plot or its table right.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { ResultName } from "../../api/client";
import { Check } from "../../image/controls";
import type { AxisKind, Choice, RasterChoice } from "./history";
import { PlotCanvas, type PlotProps } from "./PlotCanvas";
import { PlotTable } from "./PlotTable";
import { resultWords, unitSign } from "./resultWords";
import { TableButton } from "./TableButton";
import type { Notice } from "./usePick";

interface StripViewProps {
  /** What can be plotted. */
  choices: readonly ResultName[];
  /** Name of what is plotted. */
  shown: string;
  axis: AxisKind;
  /** What it can go along. */
  axes: readonly AxisKind[];
  raster: RasterChoice;
  /** Why the axis cannot be chosen; null if it can. */
  whyFixedAxis: string | null;
  plot: Omit<PlotProps, "height" | "isLow">;
  /** The map in the place of the plot; null if the plot is wanted. */
  map: JSX.Element | null;
  /** What happened with the last click, or with the last question. */
  notice: Notice | null;
  onChoose: (fields: Partial<Choice>) => void;
}

/** On a low screen the image needs the room more. */
const plotHeight = () => (window.innerHeight < 900 ? 84 : 140);

/** A map needs both directions. */
export const mapHeight = () => 2 * plotHeight();

const AXIS_WORDS: Record<AxisKind, string> = {
  image: "image number",
  time: "time",
  angle: "angle",
  raster: "raster (map)",
};

const AXIS_HELP =
  "What the plot goes along: number of the image, time since the first one, angle of the sample with [image_metadata] angle = true, or the places of a grid scan";

const described = ({ name, unit, meaning }: ResultName) =>
  `${[meaning, unit && `in ${unit}`].filter(Boolean).join(", ")} (${name})`;

function ResultChoice({ choices, shown, onChoose }: StripViewProps): JSX.Element {
  const chosen = choices.find(({ name }) => name === shown);
  return (
    <label class="strip-choice">
      <span>Plot of</span>
      <select
        class="select"
        value={shown}
        title={chosen ? described(chosen) : ""}
        onChange={(event) => onChoose({ result: event.currentTarget.value })}
      >
        {choices.map((one) => (
          <option key={one.name} value={one.name} title={described(one)}>
            {resultWords(one.name).words}
            {one.unit && ` (${unitSign(one.unit)})`}
          </option>
        ))}
      </select>
    </label>
  );
}

function AxisChoice({ axis, axes, whyFixedAxis, onChoose }: StripViewProps): JSX.Element {
  return (
    <label class="strip-choice">
      <span>against</span>
      <select
        class="select"
        value={axis}
        disabled={whyFixedAxis !== null}
        title={whyFixedAxis ?? AXIS_HELP}
        onChange={(event) => onChoose({ axis: event.currentTarget.value as AxisKind })}
      >
        {axes.map((kind) => (
          <option key={kind} value={kind}>
            {AXIS_WORDS[kind]}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The raster by hand; what is empty is as the images say it. */
function RasterFields({ raster, onChoose }: StripViewProps): JSX.Element {
  const set = (fields: Partial<RasterChoice>) => onChoose({ raster: { ...raster, ...fields } });
  const count = (text: string) => (/^[1-9]\d{0,6}$/.test(text) ? Number(text) : null);
  return (
    <div class="raster-fields">
      <CountField name="Columns" value={raster.columns} onChange={(text) => set({ columns: count(text) })} />
      <CountField name="Rows" value={raster.rows} onChange={(text) => set({ rows: count(text) })} />
      <Check text="Snake" isOn={raster.isSnake ?? false} onChange={(isSnake) => set({ isSnake })} />
    </div>
  );
}

interface CountProps {
  name: string;
  value: number | null;
  onChange: (text: string) => void;
}

function CountField({ name, value, onChange }: CountProps): JSX.Element {
  return (
    <label class="contrast-field">
      <span>{name}</span>
      <input
        class="number-input raster-count"
        inputMode="numeric"
        placeholder="auto"
        title="Empty: as the images say it"
        value={value ?? ""}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
      />
    </label>
  );
}

function NoticeLine({ notice }: { notice: Notice | null }): JSX.Element {
  return (
    <div class="strip-notice" role="status">
      {notice && <span>{notice.words}</span>}
      {notice?.offer && (
        <button type="button" class="button" onClick={notice.offer.act}>
          {notice.offer.text}
        </button>
      )}
    </div>
  );
}

export function StripView(props: StripViewProps): JSX.Element {
  const { choices, shown, plot, map, notice, onChoose } = props;
  const isTable = useSignal(false);
  const chosen = choices.find(({ name }) => name === shown);
  return (
    <section class="live-strip strip-open" aria-label="Results of the images">
      <div class="strip-controls">
        <ResultChoice {...props} />
        <TableButton isTable={isTable} />
        <AxisChoice {...props} />
        <button type="button" class="button" aria-expanded={true} onClick={() => onChoose({ isHidden: true })}>
          Hide
        </button>
        {props.axis === "raster" && <RasterFields {...props} />}
      </div>
      <div class="strip-plot">
        <p class="strip-summary" title={chosen ? `${plot.summary}\n${described(chosen)}` : plot.summary}>
          {plot.summary}
        </p>
        {isTable.value ? (
          <PlotTable {...plot} height={plotHeight()} />
        ) : (
          (map ?? <PlotCanvas {...plot} height={plotHeight()} isLow={true} />)
        )}
        <NoticeLine notice={notice} />
      </div>
    </section>
  );
}

/** In the place of the plot where there is none. */
export function EmptyStrip({ words, onChoose }: { words: string; onChoose: StripViewProps["onChoose"] }): JSX.Element {
  return (
    <section class="live-strip strip-empty" aria-label="Results of the images">
      <p class="soft">{words}</p>
      <button type="button" class="button" aria-expanded={true} onClick={() => onChoose({ isHidden: true })}>
        Hide
      </button>
    </section>
  );
}
