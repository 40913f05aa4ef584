// The strip with the images that this page has seen, for services that say nothing of the others.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Viewer } from "../../image/viewer";
import { chosenOf } from "./history";
import { shortNumber } from "./numbers";
import type { StripProps } from "./Strip";
import { EmptyStrip, StripView } from "./StripView";
import { HIT_RATE, Seen } from "./seen";

const RENEW_MS = 250;

/** Collects what comes, and draws the strip again when there is something new. */
function useSeen(viewer: Viewer): { seen: Seen; version: number } {
  const seen = useRef(new Seen());
  const version = useSignal(0);
  useEffect(() => {
    let isNew = false;
    const stop = viewer.header.subscribe((header) => {
      if (header && seen.current.add(header)) isNew = true;
    });
    const timer = setInterval(() => {
      if (isNew) version.value += 1;
      isNew = false;
    }, RENEW_MS);
    return () => {
      stop();
      clearInterval(timer);
    };
  }, [viewer, version]);
  return { seen: seen.current, version: version.value };
}

function summaryOf(seen: Seen, name: string, values: (number | null)[]): string {
  const known = values.filter((value) => value !== null);
  const last = known.at(-1);
  const count = seen.images.length;
  const images =
    count === 1 ? `image ${seen.images[0]} seen` : `${count} images seen, ${seen.images[0]} to ${seen.images.at(-1)}`;
  if (last === undefined) return `${images}; none has ${name}`;
  const [least, most] = known.reduce(([a, b], value) => [Math.min(a, value), Math.max(b, value)], [last, last]);
  const unit = name === HIT_RATE ? " %" : "";
  const range = count === 1 ? "" : `, ${shortNumber(least)} to ${shortNumber(most)}${unit}`;
  return `${images}; ${name}: last ${shortNumber(last)}${unit}${range}`;
}

export function SeenStrip({ viewer, choice, onChoose }: StripProps): JSX.Element {
  const { seen } = useSeen(viewer);
  const names = seen.names();
  const name = chosenOf(names, choice.result);
  if (name === null) {
    const words =
      seen.images.length === 0
        ? "Results of the images that this page has seen appear here."
        : "The images have no results. With [analysis] in the configuration they have.";
    return <EmptyStrip words={words} onChoose={onChoose} />;
  }
  const values = [...seen.line(name)];
  return (
    <StripView
      choices={names.map((one) => ({ name: one, unit: one === HIT_RATE ? "%" : "", meaning: "" }))}
      shown={name}
      axis="image"
      axes={["image"]}
      raster={choice.raster}
      map={null}
      whyFixedAxis="The service is older than this page: only images that were seen, by their numbers"
      plot={{
        axisName: "image",
        axis: [...seen.images],
        line: { name: name === HIT_RATE ? "hit rate of the last 50, %" : name, values },
        summary: summaryOf(seen, name, values),
        ...(name === HIT_RATE ? { most: 100 } : {}),
        onPick: (place) => {
          const image = seen.images[place];
          if (image !== undefined) viewer.goTo(image);
        },
      }}
      notice={null}
      onChoose={onChoose}
    />
  );
}
