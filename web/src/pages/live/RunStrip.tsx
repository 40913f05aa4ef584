// The strip with all images of the newest run, as the service has them.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { HitRate, ResultName, ResultPlot } from "../../api/client";
import type { Ring } from "../../live/types";
import { anglesOf, hasAngles } from "./angles";
import type { Answer } from "./ask";
import {
  type AxisKind,
  chosenOf,
  chosenRaster,
  hitRatePoints,
  hitRateSummary,
  imageOfPoint,
  keptImage,
  type Numbers,
  placeOfPoint,
  plotSummary,
  pointsOf,
} from "./history";
import type { PlotProps } from "./PlotCanvas";
import { RasterMap } from "./RasterMap";
import {
  type Cells,
  cellsOfHits,
  cellsOfResults,
  measuredRaster,
  pointsOfCells,
  type Raster,
  SIDE_MAX,
} from "./raster";
import { resultWords, unitSign } from "./resultWords";
import type { StripProps } from "./Strip";
import { EmptyStrip, mapHeight, StripView } from "./StripView";
import { HIT_RATE } from "./seen";
import { type Picked, usePick } from "./usePick";
import { useHitRate } from "./useResults";

interface RunStripProps extends StripProps {
  answer: Answer | null;
  problem: string | null;
}

const TIME_NAME = "seconds since the first image";

export function RunStrip(props: RunStripProps): JSX.Element {
  const { answer, problem, choice, onChoose } = props;
  const along = answer?.along ?? null;
  const raster = useMemo(
    () => (choice.axis === "raster" ? chosenRaster(choice.raster, measuredRaster(along)) : null),
    [along, choice.axis, choice.raster],
  );
  const choices = answer?.choices ?? [];
  if (answer?.plot) return <ResultStrip {...props} raster={raster} plot={answer.plot} choices={choices} />;
  if (choices.length > 0) return <HitRateStrip {...props} raster={raster} choices={choices} />;
  const words =
    problem !== null
      ? `The results cannot be shown: ${problem}.`
      : answer === null
        ? "Results of the images of the newest run appear here."
        : "Images of the newest run have no results. With [analysis] in the configuration they have.";
  return <EmptyStrip words={words} onChoose={onChoose} />;
}

type WithChoices = RunStripProps & { choices: readonly ResultName[]; raster: Raster | null };

/** As people read it. */
function nameIn(choices: readonly ResultName[], name: string): ResultName {
  const { unit = "", meaning = "" } = choices.find((one) => one.name === name) ?? {};
  return { name: resultWords(name).words, unit: unitSign(unit), meaning };
}

/** What was chosen is shown as chosen at once, also before its numbers come. */
function shownChoice({ choices, choice }: WithChoices): string {
  const names = choices.map(({ name }) => name);
  return chosenOf(names, choice.result) ?? "";
}

function withUnit({ name, unit }: ResultName): string {
  return unit === "" ? name : `${name}, ${unit}`;
}

/** What of a strip differs from result to result. */
interface Drawn {
  name: ResultName;
  axis: AxisKind;
  axes: readonly AxisKind[];
  whyFixedAxis?: string;
  plot: Omit<PlotProps, "height" | "isLow" | "line" | "onPick">;
  values: Numbers;
  /** The image that a point of the plot stands for. */
  imageOf?: (point: number, ring: Ring | null) => Picked | null;
  /** In the place of the plot where the axis is a raster; null if they are not known. */
  cells: Cells | null;
  problem: string | null;
}

function DrawnStrip({ drawn, ...props }: WithChoices & { drawn: Drawn }): JSX.Element {
  const { choices, choice, services, viewer, raster, onChoose } = props;
  const { name, axis, axes, whyFixedAxis, plot, values, imageOf, cells, problem } = drawn;
  const { notice, pick } = usePick(services, viewer);
  const ring = () => viewer.connection.ring.peek();
  const map = {
    name: withUnit(name),
    summary: plot.summary,
    onPick: (image: number) => pick(keptImage(image, ring())),
  };
  return (
    <StripView
      choices={choices}
      shown={shownChoice(props)}
      axis={axis}
      axes={axes}
      raster={choice.raster}
      whyFixedAxis={whyFixedAxis ?? null}
      plot={{
        ...plot,
        line: { name: withUnit(name), values },
        ...(imageOf ? { onPick: (point: number) => pick(imageOf(point, ring())) } : {}),
      }}
      map={axis === "raster" ? mapOf(cells, raster, map) : null}
      notice={problem === null ? notice : { words: `Not renewed: ${problem}.`, offer: null }}
      onChoose={onChoose}
    />
  );
}

/** The map, or why there is none. */
function mapOf(
  cells: Cells | null,
  raster: Raster | null,
  map: Omit<Parameters<typeof RasterMap>[0], "cells" | "raster" | "height">,
) {
  if (raster === null)
    return (
      <p class="soft">
        How many columns does the raster have? Give their number at the left; with [image_metadata] the images say it.
      </p>
    );
  if (cells === null) return <p class="soft">A raster of more than {SIDE_MAX} columns cannot be drawn.</p>;
  return <RasterMap {...map} cells={cells} raster={raster} height={mapHeight()} />;
}

function ResultStrip(props: WithChoices & { plot: ResultPlot }): JSX.Element {
  const { plot, choices, choice, problem, answer, raster } = props;
  const name = nameIn(choices, plot.result ?? "");
  const axes: AxisKind[] = hasAngles(choices) ? ["image", "time", "angle", "raster"] : ["image", "time", "raster"];
  const axis = axes.includes(choice.axis) ? choice.axis : "image";
  const along = answer?.along ?? null;
  const angles = useMemo(() => (axis === "angle" ? anglesOf(along) : null), [axis, along]);
  const points = useMemo(() => pointsOf(plot, axis, angles), [plot, axis, angles]);
  const cells = useMemo(
    () => (axis === "raster" && raster ? cellsOfResults(plot, raster) : null),
    [axis, plot, raster],
  );
  const hasMarks = points.without.some((count) => count > 0);
  const axisNames = { image: "image", time: TIME_NAME, angle: "angle of the sample, degrees", raster: "image" };
  const drawn: Drawn = {
    ...{ name, axis, axes, cells, problem, values: points.mean },
    plot: {
      axisName: axisNames[axis],
      isContinuous: axis === "time" || axis === "angle",
      axis: points.axis,
      band: points.band,
      marks: hasMarks ? { name: "without results", counts: points.without } : null,
      summary: plotSummary(plot, points, name),
    },
    imageOf: (point, ring) => imageOfPoint(plot, placeOfPoint(points, point), ring),
  };
  return <DrawnStrip {...props} drawn={drawn} />;
}

const NO_RATE: HitRate = { detector: "", series: 0, bin_s: 1, analysed: [], hits: [], indexed: [] };
const RATE_AXES =
  "The hit rate is known over time, and over a raster of [image_metadata]; is_hit can be plotted against the number of the image";

function HitRateStrip(props: WithChoices): JSX.Element {
  const { choices, choice, services, raster } = props;
  const { answer, problem } = useHitRate(services);
  const rate = answer ?? NO_RATE;
  const name = nameIn(choices, HIT_RATE);
  const axes: AxisKind[] = rate.raster ? ["time", "raster"] : ["time"];
  const axis = axes.includes(choice.axis) ? choice.axis : "time";
  const points = useMemo(() => hitRatePoints(rate), [rate]);
  const cells = useMemo(() => (axis === "raster" && raster ? cellsOfHits(rate, raster) : null), [axis, rate, raster]);
  const places = useMemo(() => (cells && raster ? pointsOfCells(cells, raster) : null), [cells, raster]);
  const drawn: Drawn = {
    ...{ name, axis, axes, cells, problem, values: places?.values ?? points.mean },
    ...(axes.length > 1 ? {} : { whyFixedAxis: RATE_AXES }),
    plot: {
      axisName: places ? "image" : TIME_NAME,
      isContinuous: places === null,
      axis: places?.images ?? points.axis,
      most: 100,
      summary: answer ? hitRateSummary(rate, points, name) : "The hit rate is not known yet",
    },
    ...(places ? { imageOf: (point, ring) => keptImage(places.images[point] ?? 0, ring) } : {}),
  };
  return <DrawnStrip {...props} drawn={drawn} />;
}
