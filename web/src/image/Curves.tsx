// An image of a few rows: a curve for each, counts against pixel. The rows themselves are below it, in the same view.

import { effect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { aloneIn, drawMarks, plotAxis, shade } from "../app/plot";
import { isDark } from "../app/theme";
import type { Point } from "./geometry";
import { followPointer } from "./pointer";
import { CURVES_LEFT_PX, CURVES_RIGHT_PX, curvesOf, curvesText, nearestRow, type RowCurves } from "./rowCurves";
import type { Viewer } from "./viewer";
import "./curves.css";

const COLOURS = 4;
const DASH = [6, 4];
const NONE: RowCurves = { columns: [], rows: [], without: [] };

/** Height of the rows below the curves, with room for a name of each. */
export const rowsHeight = (rows: number): number => Math.max(64, 18 * rows);

const dashOf = (row: number) => (row < COLOURS ? {} : { dash: DASH });
const colourOf = (row: number) => `--series-${(row % COLOURS) + 1}`;

class CurvePlot {
  private readonly plot: uPlot;
  private readonly stops: (() => void)[];
  private shown = NONE;

  constructor(
    private readonly viewer: Viewer,
    private readonly element: HTMLElement,
    rows: number,
  ) {
    this.plot = new uPlot(this.options(rows), [[], ...Array.from({ length: rows }, () => [])], element);
    viewer.curves = this.plot.ctx.canvas;
    const resized = new ResizeObserver(() => this.plot.setSize(this.size()));
    resized.observe(element);
    this.stops = [
      followPointer(this.plot.over, viewer, (at) => this.onRow(at)),
      effect(() => this.showFrame()),
      effect(() => this.showView()),
      effect(() => this.showPointer()),
      effect(() => this.showBox()),
      () => resized.disconnect(),
    ];
  }

  end(): void {
    for (const stop of this.stops) stop();
    this.viewer.curves = null;
    this.plot.destroy();
  }

  private size() {
    return { width: this.element.clientWidth || 300, height: this.element.clientHeight || 200 };
  }

  private options(rows: number): uPlot.Options {
    const isLog = this.viewer.look.peek().scale === "log";
    const alone: uPlot.Series.Points.Filter = (_plot, series, show) =>
      show ? null : aloneIn(this.shown.rows[series - 1] ?? []);
    return {
      ...this.size(),
      legend: { show: false },
      padding: [10, CURVES_RIGHT_PX, 0, 0],
      cursor: { drag: { x: false, y: false }, y: false },
      // Zero and less have a place on this scale, unlike on one of logarithms.
      scales: { x: { time: false, range: () => this.range() }, y: isLog ? { distr: 4, asinh: 1 } : {} },
      axes: [
        {
          ...plotAxis,
          label: () => `x, pixel${this.hasMarks() ? "   ▲ without a count" : ""}`,
          labelSize: 20,
          size: 30,
        },
        { ...plotAxis, size: CURVES_LEFT_PX, space: 20 },
      ],
      series: [
        {},
        ...Array.from({ length: rows }, (_, row) => ({
          ...dashOf(row),
          label: `row ${row}`,
          stroke: shade(colourOf(row)),
          width: 1.5,
          spanGaps: false,
          points: { size: 5, filter: alone },
        })),
      ],
      hooks: { draw: [(plot) => drawMarks(plot, this.shown.columns, this.shown.without)] },
    };
  }

  private hasMarks(): boolean {
    return this.shown.without.some((rows) => rows > 0);
  }

  /** Columns are named at their middle. */
  private range(): [number, number] {
    const view = this.viewer.actualView();
    return view ? [view.x - 0.5, view.x + this.viewer.canvas.value.width / view.scale - 0.5] : [0, 1];
  }

  private showFrame(): void {
    void this.viewer.header.value;
    const { frame } = this.viewer;
    if (!frame) return;
    this.shown = curvesOf(frame);
    this.element.setAttribute("aria-label", curvesText(this.shown));
    this.plot.setData([this.shown.columns, ...this.shown.rows]);
  }

  private showView(): void {
    const [min, max] = this.range();
    this.plot.setScale("x", { min, max });
  }

  private showPointer(): void {
    const at = this.viewer.pointer.value;
    this.plot.setCursor(at ? { left: at.x, top: 0 } : { left: -10, top: -10 });
  }

  private showBox(): void {
    const box = this.viewer.box.value;
    const [left, right] = box ? [Math.min(box[0].x, box[1].x), Math.max(box[0].x, box[1].x)] : [0, 0];
    this.plot.setSelect({ left, width: right - left, top: 0, height: this.plot.over.clientHeight }, false);
  }

  /** Near a curve is on the row of which it is. */
  private onRow({ x, y }: Point): Point {
    const column = Math.round(this.plot.posToVal(x, "x"));
    const [first = 0, second = 1] = this.shown.columns;
    const n = Math.floor((column - first) / (second - first));
    const heights = this.shown.rows.map((row) => {
      const value = row[n] ?? null;
      return value === null ? null : this.plot.valToPos(value, "y");
    });
    const rows = Math.max(1, heights.length);
    return { x, y: (this.viewer.canvas.peek().height * (nearestRow(heights, y) + 0.5)) / rows };
  }
}

export function Curves({ viewer, rows }: { viewer: Viewer; rows: number }): JSX.Element {
  const place = useRef<HTMLDivElement>(null);
  const { scale } = viewer.look.value;
  // With any of these the plot is made anew.
  const kind = `${rows} ${scale} ${isDark.value}`;
  useEffect(() => {
    if (!place.current) return;
    const made = new CurvePlot(viewer, place.current, rows);
    return () => made.end();
  }, [viewer, kind]);
  return (
    <>
      <div class="image-curves" ref={place} role="img" aria-label="Counts against pixel" />
      {rows > 1 && (
        <ol class="row-names" aria-label="Rows" style={{ height: `${rowsHeight(rows)}px` }}>
          {Array.from({ length: rows }, (_, row) => (
            <li key={row}>
              <span
                class="row-line"
                style={{ borderTop: `2px ${row < COLOURS ? "solid" : "dashed"} var(${colourOf(row)})` }}
              />
              row {row}
            </li>
          ))}
        </ol>
      )}
    </>
  );
}
