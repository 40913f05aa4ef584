// How far the measurement of pedestals is, stage by stage.

import type { JSX } from "preact";
import { count } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import type { DetectorStatus } from "../../live/types";
import { stageName } from "./report";

export function Progress({ status }: { status: DetectorStatus | null }): JSX.Element | null {
  const stages = status?.dark_frames;
  if (!stages) return null;
  return (
    <ul class="plain-list" aria-label="Progress of the gain stages">
      {stages.map(({ stage, frames, expected }) => {
        const name = stage === "auto" ? "Frames" : stageName(stage);
        return (
          <li key={stage} class="stage-progress">
            <strong>{name}</strong>
            <progress value={frames} max={expected} aria-label={`${name}: frames that came`} />
            <span class="number">
              {count(frames)} of {count(expected)}
            </span>
            {frames >= expected ? <SeverityWord severity="success" word="done" /> : <span />}
          </li>
        );
      })}
    </ul>
  );
}
