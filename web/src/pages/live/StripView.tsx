// What the strip looks like: its choices left, the plot or its table right.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { ResultName } from "../../api/client";
import type { AxisKind, Choice } from "./history";
import { PlotCanvas, type PlotProps } from "./PlotCanvas";
import { PlotTable } from "./PlotTable";

interface StripViewProps {
  /** What can be plotted. */
  choices: readonly ResultName[];
  /** Name of what is plotted. */
  shown: string;
  axis: AxisKind;
  /** Why the axis cannot be chosen; null if it can. */
  whyFixedAxis: string | null;
  plot: Omit<PlotProps, "height" | "isLow">;
  /** What happened with the last click, or with the last question. */
  notice: string | null;
  onChoose: (fields: Partial<Choice>) => void;
}

/** On a low screen the image needs the room more. */
const plotHeight = () => (window.innerHeight < 900 ? 84 : 140);

const AXES: [AxisKind, string][] = [
  ["image", "image number"],
  ["time", "time"],
];

const described = ({ unit, meaning }: ResultName) => [meaning, unit && `in ${unit}`].filter(Boolean).join(", ");

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
            {one.name}
            {one.unit && ` (${one.unit})`}
          </option>
        ))}
      </select>
    </label>
  );
}

function AxisChoice({ axis, whyFixedAxis, onChoose }: StripViewProps): JSX.Element {
  return (
    <label class="strip-choice">
      <span>against</span>
      <select
        class="select"
        value={axis}
        disabled={whyFixedAxis !== null}
        title={whyFixedAxis ?? "What the plot goes along: number of the image, or time since the first one"}
        onChange={(event) => onChoose({ axis: event.currentTarget.value as AxisKind })}
      >
        {AXES.map(([kind, words]) => (
          <option key={kind} value={kind}>
            {words}
          </option>
        ))}
      </select>
    </label>
  );
}

export function StripView(props: StripViewProps): JSX.Element {
  const { choices, shown, plot, notice, onChoose } = props;
  const isTable = useSignal(false);
  const chosen = choices.find(({ name }) => name === shown);
  return (
    <section class="live-strip strip-open" aria-label="Results of the images">
      <div class="strip-controls">
        <ResultChoice {...props} />
        <button
          type="button"
          class="button"
          aria-pressed={isTable.value}
          onClick={() => {
            isTable.value = !isTable.value;
          }}
        >
          Table
        </button>
        <AxisChoice {...props} />
        <button type="button" class="button" aria-expanded={true} onClick={() => onChoose({ isHidden: true })}>
          Hide
        </button>
      </div>
      <div class="strip-plot">
        <p class="strip-summary" title={chosen ? `${plot.summary}\n${shown}: ${described(chosen)}` : plot.summary}>
          {plot.summary}
        </p>
        {isTable.value ? (
          <PlotTable {...plot} height={plotHeight()} />
        ) : (
          <PlotCanvas {...plot} height={plotHeight()} isLow={true} />
        )}
        <p class="strip-notice" role="status">
          {notice}
        </p>
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
