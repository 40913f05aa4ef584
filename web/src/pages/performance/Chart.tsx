// A small plot over time.

import { effect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock } from "../../app/format";
import { isDark } from "../../app/theme";
import { topOf, withoutRepeats } from "./axes";
import { history, KEPT_S, type Sample } from "./history";

export interface Line {
  name: string;
  of: (sample: Sample) => number | null;
  /** Lines differ by dashes, too, and not by colour alone. */
  dash?: number[];
}

interface ChartProps {
  title: string;
  lines: readonly Line[];
  show: (value: number) => string;
  /** The axis ends there if all is less, and never beyond `mostTop`. */
  leastTop?: number;
  mostTop?: number;
}

const HEIGHT_PX = 170;
const AXIS_PX = 84;
/** Whole minutes, as the labels are. */
const STEPS_S = [60, 120, 300];

const minute = (timeS: number): string => clock(new Date(1000 * timeS)).slice(0, 5);

function dataOf(samples: readonly Sample[], lines: readonly Line[]): uPlot.AlignedData {
  return [samples.map(({ timeS }) => timeS), ...lines.map(({ of }) => samples.map(of))];
}

/** uPlot gives null where there is nothing to show yet. */
function lastMinutes(last: number | null): [number, number] {
  const end = last ?? Date.now() / 1000;
  return [end - KEPT_S, end];
}

function options({ title, lines, show, leastTop = 1, mostTop }: ChartProps, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string): string => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--text-soft"), font: "14px sans-serif", grid: { stroke: colour("--line"), width: 1 } };
  return {
    width,
    height: HEIGHT_PX,
    title,
    legend: { show: lines.length > 1, live: false },
    cursor: { show: false },
    scales: {
      x: { time: true, range: (_, __, last) => lastMinutes(last) },
      y: { range: (_, __, most) => [0, topOf(most, leastTop, mostTop)] },
    },
    axes: [
      { ...axis, space: 90, incrs: STEPS_S, values: (_, values) => withoutRepeats(values.map(minute)) },
      { ...axis, size: AXIS_PX, values: (_, values) => withoutRepeats(values.map(show)) },
    ],
    series: [
      {},
      ...lines.map(({ name, dash }, place) => ({
        label: name,
        stroke: colour(`--series-${place + 1}`),
        width: 2,
        points: { show: false },
        ...(dash ? { dash } : {}),
      })),
    ],
  };
}

export function Chart(props: ChartProps): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const { lines } = props;
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const plot = new uPlot(options(props, element.clientWidth), dataOf(history.peek(), lines), element);
    const stop = effect(() => plot.setData(dataOf(history.value, lines)));
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    resized.observe(element);
    return () => {
      stop();
      resized.disconnect();
      plot.destroy();
    };
  }, [isDark.value]);
  const last = history.value.at(-1);
  const spoken = lines.map(({ name, of }) => {
    const value = last ? of(last) : null;
    return `${name} ${value === null ? "not known" : props.show(value)}`;
  });
  return <div class="chart" ref={place} role="img" aria-label={`${props.title}: now ${spoken.join(", ")}`} />;
}
