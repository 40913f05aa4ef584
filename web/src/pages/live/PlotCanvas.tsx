// A plot in the colours of the page.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { aloneIn, drawMarks, lineColour, plotAxis } from "../../app/plot";
import { isDark } from "../../app/theme";
import { wholeRange, yRangeUpTo } from "./plotting";

export interface PlotLine {
  name: string;
  values: (number | null)[];
}

export interface PlotProps {
  /** What the numbers along the axis are. */
  axisName: string;
  axis: number[];
  line: PlotLine;
  /** From the lowest to the highest of what the line is the mean of. */
  band?: { lowest: (number | null)[]; highest: (number | null)[] } | null;
  /** How many of something each point has; where there are any, a mark stands at the bottom. */
  marks?: { name: string; counts: number[] } | null;
  /** What the plot says, in one sentence. */
  summary: string;
  height: number;
  isLog?: boolean;
  /** Where the numbers along the axis are not counted. */
  isContinuous?: boolean;
  /** The numbers go from 0 to this at most. */
  most?: number;
  /** Without the name of the axis, where it is said elsewhere. */
  isLow?: boolean;
  /** Called with the place in `axis` of a click. */
  onPick?: (place: number) => void;
}

/** The colours of the page are written with six digits. */
const faint = (alpha: string) => () => `${lineColour()}${alpha}`;

// Images and bins are counted.
const WHOLE_STEPS = Array.from({ length: 10 }, (_, n) => [1, 2, 5].map((step) => step * 10 ** n)).flat();
const POINTS_MAX = 200;

type Latest = { current: PlotProps };

function meanSeries(latest: Latest): uPlot.Series {
  const hasAll = () => latest.current.axis.length < POINTS_MAX;
  return {
    label: latest.current.line.name,
    stroke: lineColour,
    width: 1.5,
    spanGaps: false,
    points: {
      size: 5,
      stroke: lineColour,
      fill: lineColour,
      show: hasAll,
      // A number between two gaps has no line.
      filter: () => (hasAll() ? null : aloneIn(latest.current.line.values)),
    },
  };
}

function edgeSeries(label: string): uPlot.Series {
  return { label, stroke: faint("80"), width: 1, spanGaps: false, points: { show: false } };
}

function axesOf({ axisName, isLow, isContinuous }: PlotProps): uPlot.Axis[] {
  const label = isLow
    ? { size: 26, ticks: { ...plotAxis.ticks, size: 4 }, gap: 2 }
    : { label: axisName, labelSize: 22, size: 34 };
  return [
    { ...plotAxis, ...label, ...(isContinuous ? {} : { incrs: WHOLE_STEPS }) },
    { ...plotAxis, size: 84, space: 16 },
  ];
}

function optionsOf(latest: Latest, width: number): uPlot.Options {
  const props = latest.current;
  const { isLog, most, band } = props;
  const y: uPlot.Scale = isLog ? { distr: 3 } : most === undefined ? {} : { range: yRangeUpTo(most) };
  return {
    width,
    height: props.height,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, y: false },
    scales: { x: { time: false, range: wholeRange }, y },
    series: [{}, ...(band ? [edgeSeries("lowest"), edgeSeries("highest")] : []), meanSeries(latest)],
    ...(band ? { bands: [{ series: [2, 1] as [number, number], fill: faint("30") }] } : {}),
    axes: axesOf(props),
    hooks: { draw: [(plot) => drawMarks(plot, latest.current.axis, latest.current.marks?.counts ?? [])] },
  };
}

/** Zero and less have no place on a logarithmic axis. */
function dataOf({ axis, line, band, isLog }: PlotProps): uPlot.AlignedData {
  const values = isLog ? line.values.map((value) => (value !== null && value > 0 ? value : null)) : line.values;
  return band ? [axis, band.lowest, band.highest, values] : [axis, values];
}

export function PlotCanvas(props: PlotProps): JSX.Element {
  const frame = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const { axis, line, band, marks, isLog, height, most, isContinuous, isLow } = props;
  // With any of these the plot is made anew.
  const kind = [
    props.axisName,
    line.name,
    isLog,
    height,
    most,
    isContinuous,
    isLow,
    Boolean(band),
    isDark.value,
  ].join();
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const made = new uPlot(optionsOf(latest, element.clientWidth || 300), dataOf(latest.current), element);
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
  useEffect(() => plot.current?.setData(dataOf(latest.current)), [axis, line.values, band, marks, isLog]);
  const isPicked = props.onPick ? "plot-canvas picks" : "plot-canvas";
  return <div ref={frame} class={isPicked} role="img" aria-label={props.summary} />;
}
