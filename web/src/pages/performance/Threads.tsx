// What each thread takes of a processor, by what it does.

import type { JSX } from "preact";
import type { Machine, ThreadLoad } from "../../api/client";
import { percent, UNKNOWN } from "../../app/format";
import { type GroupLoad, groupsOf } from "./load";

const NEARLY_ALL = 0.9;

export function Threads({ machine }: { machine: Machine | null }): JSX.Element {
  const groups = groupsOf(machine?.threads ?? []);
  return (
    <section class="card" aria-label="Threads">
      <h2>Threads</h2>
      <p class="soft">
        Share of a core over the last second
        {machine ? `; the service may use ${machine.cores} cores` : ""}. A thread near 100 % is what limits the rate.
      </p>
      {groups.length === 0 && <p class="soft">{UNKNOWN}</p>}
      <div class="groups">
        {groups.map((group) => (
          <Group key={group.group} group={group} />
        ))}
      </div>
    </section>
  );
}

function Group({ group: { name, cores, busy, idle } }: { group: GroupLoad }): JSX.Element {
  return (
    <div class="group">
      <h3>
        {name} <span class="soft">{cores.toFixed(2)} cores</span>
      </h3>
      {busy.map((thread, place) => (
        <Bar key={`${thread.name} ${place}`} thread={thread} />
      ))}
      {idle > 0 && <p class="soft">{busy.length > 0 ? `and ${idle} idle` : `${idle} idle`}</p>}
    </div>
  );
}

function Bar({ thread: { name, cores } }: { thread: ThreadLoad }): JSX.Element {
  return (
    <label class="thread">
      <span class="mono">{name}</span>
      <meter min={0} max={1} high={NEARLY_ALL} value={cores} />
      <span class="number">
        {cores > NEARLY_ALL ? "▲ " : ""}
        {percent(cores)}
      </span>
    </label>
  );
}
