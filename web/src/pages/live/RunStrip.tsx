// The strip with all images of the newest run, as the service has them.

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { HitRate, ResultName, ResultPlot } from "../../api/client";
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
  placeOfPoint,
  plotSummary,
  pointsOf,
} from "./history";
import { RasterMap } from "./RasterMap";
import { type Cells, cellsOfHits, cellsOfResults, measuredRaster, type Raster, SIDE_MAX } from "./raster";
import type { StripProps } from "./Strip";
import { EmptyStrip, mapHeight, StripView } from "./StripView";
import { HIT_RATE } from "./seen";
import { type Notice, usePick } from "./usePick";
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

const nameIn = (choices: readonly ResultName[], name: string): ResultName =>
  choices.find((one) => one.name === name) ?? { name, unit: "", meaning: "" };

/** What was chosen is shown as chosen at once, also before its numbers come. */
function shownChoice({ choices, choice }: WithChoices): string {
  const names = choices.map(({ name }) => name);
  return chosenOf(names, choice.result) ?? "";
}

function withUnit({ name, unit }: ResultName): string {
  return unit === "" ? name : `${name}, ${unit}`;
}

const noticeOf = (problem: string | null, notice: Notice | null): Notice | null =>
  problem === null ? notice : { words: `Not renewed: ${problem}.`, offer: null };

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
  const { plot, choices, choice, problem, viewer, services, answer, raster, onChoose } = props;
  const { notice, pick } = usePick(services, viewer);
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
  const ring = () => viewer.connection.ring.peek();
  const summary = plotSummary(plot, points, name);
  const hasMarks = points.without.some((count) => count > 0);
  const axisNames = { image: "image", time: TIME_NAME, angle: "angle of the sample, degrees", raster: "image" };
  return (
    <StripView
      choices={choices}
      shown={shownChoice(props)}
      axis={axis}
      axes={axes}
      raster={choice.raster}
      whyFixedAxis={null}
      plot={{
        axisName: axisNames[axis],
        isContinuous: axis === "time" || axis === "angle",
        axis: points.axis,
        line: { name: withUnit(name), values: points.mean },
        band: points.band,
        marks: hasMarks ? { name: "without results", counts: points.without } : null,
        summary,
        onPick: (point) => pick(imageOfPoint(plot, placeOfPoint(points, point), ring())),
      }}
      map={
        axis === "raster"
          ? mapOf(cells, raster, { name: withUnit(name), summary, onPick: (image) => pick(keptImage(image, ring())) })
          : null
      }
      notice={noticeOf(problem, notice)}
      onChoose={onChoose}
    />
  );
}

const NO_RATE: HitRate = { detector: "", series: 0, bin_s: 1, analysed: [], hits: [], indexed: [] };

function HitRateStrip(props: WithChoices): JSX.Element {
  const { choices, choice, viewer, services, raster, onChoose } = props;
  const { answer, problem } = useHitRate(services);
  const { notice, pick } = usePick(services, viewer);
  const rate = answer ?? NO_RATE;
  const name = nameIn(choices, HIT_RATE);
  const points = useMemo(() => hitRatePoints(rate), [rate]);
  const axes: AxisKind[] = rate.raster ? ["time", "raster"] : ["time"];
  const axis = axes.includes(choice.axis) ? choice.axis : "time";
  const cells = useMemo(() => (raster ? cellsOfHits(rate, raster) : null), [rate, raster]);
  const summary = answer ? hitRateSummary(rate, points, name) : "The hit rate is not known yet";
  const ring = () => viewer.connection.ring.peek();
  return (
    <StripView
      choices={choices}
      shown={shownChoice(props)}
      axis={axis}
      axes={axes}
      raster={choice.raster}
      whyFixedAxis={
        axes.length > 1
          ? null
          : "The hit rate is known over time, and over a raster of [image_metadata]; is_hit can be plotted against the number of the image"
      }
      plot={{
        axisName: TIME_NAME,
        isContinuous: true,
        axis: points.axis,
        line: { name: withUnit(name), values: points.mean },
        most: 100,
        summary,
      }}
      map={
        axis === "raster"
          ? mapOf(cells, raster, { name: withUnit(name), summary, onPick: (image) => pick(keptImage(image, ring())) })
          : null
      }
      notice={noticeOf(problem, notice)}
      onChoose={onChoose}
    />
  );
}
