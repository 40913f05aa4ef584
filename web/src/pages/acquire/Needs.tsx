// What the run needs, and what stands in its way, as the service says it.

import type { JSX } from "preact";
import { SeverityWord } from "../../app/Shapes";
import { needsOf } from "./dryRun";
import type { Asked } from "./useDryRun";

interface NeedsProps {
  asked: Asked;
  /** What is wrong and belongs to no field of the form. */
  others: readonly string[];
}

export function Needs({ asked: { answer, isOld }, others }: NeedsProps): JSX.Element | null {
  if (answer === null) return null;
  return (
    <>
      {others.map((words) => (
        <p key={words} class="need-problem" role="status">
          <SeverityWord severity="warning" word="Would be refused:" /> {words}
        </p>
      ))}
      <dl class={isOld ? "needs soft" : "needs"} aria-label="What this run needs">
        {needsOf(answer).map(({ name, value, note, isBad }) => (
          <div key={name} class={isBad ? "need bad" : "need"}>
            <dt>
              {isBad ? "▲ " : ""}
              {name}
            </dt>
            <dd>
              {value} {note && <span class="need-note">{note}</span>}
            </dd>
          </div>
        ))}
      </dl>
    </>
  );
}
