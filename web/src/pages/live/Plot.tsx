// A plot in the colours of the page, with its numbers as a table for who does not see it.

import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { theme } from "../../app/theme";

export interface PlotLine {
  name: string;
  values: (number | null)[];
}

interface PlotProps {
  /** What the numbers along the axis are. */
  axisName: string;
  axis: number[];
  line: PlotLine;
  /** What the plot says, in one sentence. */
  summary: string;
  height: number;
  isLog?: boolean;
  /** Controls that stand before the summary. */
  controls?: ComponentChildren;
  /** Called with the place in `axis` of a click. */
  onPick?: (place: number) => void;
}

const TABLE_ROWS = 100;

function colour(name: string, otherwise: string): () => string {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name).trim() || otherwise;
}

const text = colour("--text", "#222");
const lineColour = colour("--accent", "#0b5cad");
const grid = { stroke: colour("--line", "#ccc"), width: 1 };
const FONT = "14px system-ui, sans-serif";

// Images, bins and seconds are counted.
const WHOLE_STEPS = Array.from({ length: 10 }, (_, n) => [1, 2, 5].map((step) => step * 10 ** n)).flat();

function optionsOf(props: PlotProps, width: number): uPlot.Options {
  const axis = { stroke: text, grid, ticks: grid, font: FONT, labelFont: FONT };
  const points = { show: props.axis.length < 200, size: 5, stroke: lineColour, fill: lineColour };
  return {
    width,
    height: props.height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false },
    scales: { x: { time: false }, y: props.isLog ? { distr: 3 } : {} },
    series: [{}, { label: props.line.name, stroke: lineColour, width: 1.5, points, spanGaps: false }],
    axes: [
      { ...axis, label: props.axisName, labelSize: 22, size: 34, incrs: WHOLE_STEPS },
      { ...axis, size: 70, space: 16 },
    ],
  };
}

/** Zero and less have no place on a logarithmic axis. */
function dataOf({ axis, line, isLog }: PlotProps): uPlot.AlignedData {
  const values = isLog ? line.values.map((value) => (value !== null && value > 0 ? value : null)) : line.values;
  return [axis, values];
}

function useIsDark(): boolean {
  const dark = useSignal(false);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const look = () => {
      dark.value = query.matches;
    };
    look();
    query.addEventListener("change", look);
    return () => query.removeEventListener("change", look);
  }, [dark]);
  return dark.value;
}

function Canvas(props: PlotProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const kind = `${props.axisName} ${props.line.name} ${props.isLog} ${props.height} ${theme.value} ${useIsDark()}`;
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const made = new uPlot(optionsOf(latest.current, element.clientWidth || 300), dataOf(latest.current), element);
    plot.current = made;
    const pick = () => {
      const place = made.cursor.idx;
      if (typeof place === "number") latest.current.onPick?.(place);
    };
    made.over.addEventListener("click", pick);
    const observer = new ResizeObserver(() => {
      if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height: latest.current.height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [kind]);
  useEffect(() => plot.current?.setData(dataOf(props)));
  const isPicked = props.onPick ? "plot-canvas picks" : "plot-canvas";
  return <div ref={frame} class={isPicked} role="img" aria-label={props.summary} />;
}

function Table({ axisName, axis, line, onPick }: PlotProps): JSX.Element {
  const first = Math.max(0, axis.length - TABLE_ROWS);
  const places = Array.from({ length: axis.length - first }, (_, n) => axis.length - 1 - n);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section class="table-frame plot-table" aria-label={`The last ${places.length} numbers`} tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">{axisName}</th>
            <th scope="col">{line.name}</th>
          </tr>
        </thead>
        <tbody>
          {places.map((place) => (
            <tr key={place}>
              <td>
                {onPick ? (
                  <button type="button" class="button" onClick={() => onPick(place)}>
                    {axis[place]}
                  </button>
                ) : (
                  axis[place]
                )}
              </td>
              <td>{line.values[place] ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

export function Plot(props: PlotProps): JSX.Element {
  const isTable = useSignal(false);
  return (
    <figure class="plot">
      <figcaption class="plot-caption">
        {props.controls}
        <span>{props.summary}</span>
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
      </figcaption>
      {isTable.value ? <Table {...props} /> : <Canvas {...props} />}
    </figure>
  );
}
