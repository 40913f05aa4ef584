// One result of all images that were seen, against their number; a click shows the image.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Viewer } from "../../image/viewer";
import { shortNumber } from "./numbers";
import { Plot } from "./Plot";
import { HIT_RATE, Seen } from "./seen";

const RENEW_MS = 250;
/** On a low screen the image needs the room more. */
const height = () => (window.innerHeight < 900 ? 110 : 130);
const FIRST_CHOICES = [HIT_RATE, "spots", "max_value", "sum_value"];

/** Collects what comes; gives a number that changes when the plot must. */
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

export function Strip({ viewer }: { viewer: Viewer }): JSX.Element {
  const { seen } = useSeen(viewer);
  const chosen = useSignal<string | null>(null);
  const names = seen.names();
  const name = chosen.value ?? FIRST_CHOICES.find((one) => names.includes(one)) ?? names[0];
  if (name === undefined) {
    return (
      <section class="live-strip" aria-label="Results of the images seen">
        <p class="soft">
          {seen.images.length === 0
            ? "Results of the images that this page has seen appear here."
            : "The images have no results. With [analysis] in the configuration they have."}
        </p>
      </section>
    );
  }
  const values = seen.line(name);
  const pick = (place: number) => {
    const image = seen.images[place];
    if (image !== undefined) viewer.goTo(image);
  };
  const controls = (
    <label class="strip-choice">
      <span>Plot of</span>
      <select
        class="select"
        value={name}
        onChange={(event) => {
          chosen.value = event.currentTarget.value;
        }}
      >
        {(names.includes(name) ? names : [name, ...names]).map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <section class="live-strip" aria-label="Results of the images seen">
      <Plot
        axisName="number of the image; click a point to show it"
        axis={[...seen.images]}
        line={{ name: name === HIT_RATE ? "hit rate of the last 50, %" : name, values: [...values] }}
        summary={summaryOf(seen, name, values)}
        height={height()}
        controls={controls}
        onPick={pick}
      />
    </section>
  );
}
