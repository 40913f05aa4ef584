// One result of all images of the newest run, below the image; it can be hidden, so that the image has more room.

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { Services } from "../../app/services";
import type { Viewer } from "../../image/viewer";
import { type Choice, readChoice } from "./history";
import { RunStrip } from "./RunStrip";
import { SeenStrip } from "./SeenStrip";
import { useResults } from "./useResults";

const CHOICE_KEY = "konkordia.plot";

export interface StripProps {
  services: Services;
  viewer: Viewer;
  choice: Choice;
  onChoose: (fields: Partial<Choice>) => void;
}

function useChoice(): Signal<Choice> {
  return useSignal(useMemo(() => readChoice(sessionStorage.getItem(CHOICE_KEY)), []));
}

export function Strip({ services, viewer }: Pick<StripProps, "services" | "viewer">): JSX.Element {
  const choice = useChoice();
  const choose = (fields: Partial<Choice>) => {
    choice.value = { ...choice.value, ...fields };
    sessionStorage.setItem(CHOICE_KEY, JSON.stringify(choice.value));
  };
  if (choice.value.isHidden) {
    return (
      <section class="live-strip" aria-label="Results of the images">
        <button type="button" class="button" aria-expanded={false} onClick={() => choose({ isHidden: false })}>
          Show plot
        </button>
      </section>
    );
  }
  return <OpenStrip services={services} viewer={viewer} choice={choice.value} onChoose={choose} />;
}

function OpenStrip(props: StripProps): JSX.Element {
  const { answer, problem } = useResults(props.services, props.choice.result, props.choice.axis);
  // An older service says nothing of images that this page has not seen.
  if (answer?.choices === null) return <SeenStrip {...props} />;
  return <RunStrip {...props} answer={answer} problem={problem} />;
}
