// The strip with all images of the newest run, as the service has them.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { HitRate, ResultName, ResultPlot } from "../../api/client";
import type { Answer } from "./ask";
import { chosenOf, hitRatePoints, hitRateSummary, imageOfPoint, plotSummary, pointsOf } from "./history";
import type { StripProps } from "./Strip";
import { EmptyStrip, StripView } from "./StripView";
import { HIT_RATE } from "./seen";

interface RunStripProps extends StripProps {
  answer: Answer | null;
  problem: string | null;
}

const TIME_NAME = "seconds since the first image";

export function RunStrip(props: RunStripProps): JSX.Element {
  const { answer, problem, onChoose } = props;
  if (answer?.plot) return <ResultStrip {...props} plot={answer.plot} choices={answer.choices ?? []} />;
  if (answer?.hitRate) return <HitRateStrip {...props} rate={answer.hitRate} choices={answer.choices ?? []} />;
  const words =
    problem !== null
      ? `The results cannot be shown: ${problem}.`
      : answer === null
        ? "Results of the images of the newest run appear here."
        : "Images of the newest run have no results. With [analysis] in the configuration they have.";
  return <EmptyStrip words={words} onChoose={onChoose} />;
}

type WithChoices = RunStripProps & { choices: readonly ResultName[] };

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

function ResultStrip(props: WithChoices & { plot: ResultPlot }): JSX.Element {
  const { plot, choices, choice, problem, viewer, onChoose } = props;
  const notice = useSignal<string | null>(null);
  const name = nameIn(choices, plot.result ?? "");
  const points = useMemo(() => pointsOf(plot, choice.axis), [plot, choice.axis]);
  const pick = (place: number) => {
    const found = imageOfPoint(plot, place, viewer.connection.ring.peek());
    if (found === null) return;
    if (found.isKept) viewer.goTo(found.image);
    notice.value = found.isKept ? null : `Image ${found.image} is not kept any more: it is only in the file.`;
  };
  const hasMarks = points.without.some((count) => count > 0);
  return (
    <StripView
      choices={choices}
      shown={shownChoice(props)}
      axis={choice.axis}
      whyFixedAxis={null}
      plot={{
        axisName: choice.axis === "time" ? TIME_NAME : "image",
        isContinuous: choice.axis === "time",
        axis: points.axis,
        line: { name: withUnit(name), values: points.mean },
        band: points.band,
        marks: hasMarks ? { name: "without results", counts: points.without } : null,
        summary: plotSummary(plot, points, name),
        onPick: pick,
      }}
      notice={problem === null ? notice.value : `Not renewed: ${problem}.`}
      onChoose={onChoose}
    />
  );
}

function HitRateStrip(props: WithChoices & { rate: HitRate }): JSX.Element {
  const { rate, choices, problem, onChoose } = props;
  const name = nameIn(choices, HIT_RATE);
  const points = useMemo(() => hitRatePoints(rate), [rate]);
  return (
    <StripView
      choices={choices}
      shown={shownChoice(props)}
      axis="time"
      whyFixedAxis="The hit rate is known over time; is_hit can be plotted against the number of the image"
      plot={{
        axisName: TIME_NAME,
        isContinuous: true,
        axis: points.axis,
        line: { name: withUnit(name), values: points.mean },
        most: 100,
        summary: hitRateSummary(rate, points, name),
      }}
      notice={problem === null ? null : `Not renewed: ${problem}.`}
      onChoose={onChoose}
    />
  );
}
