// The way of the images through the service, one card for each step.

import type { JSX } from "preact";
import { bytesPerSecond, count, microseconds, rateHz } from "../../app/format";
import type { DetectorStatistics } from "../../live/types";
import { STAGES, type Stage } from "./names";

export function Chain({ statistics }: { statistics: DetectorStatistics | null }): JSX.Element {
  // A step that the detector does not have, such as files of a run without files, tells nothing.
  const stages = STAGES.filter(
    (stage) => statistics === null || stage.rate !== undefined || isThere(stage, statistics),
  );
  return (
    <ol class="chain" aria-label="The way of the images">
      {stages.map((stage) => (
        <li key={stage.id} class="card">
          <h2>{stage.name}</h2>
          <p class="soft">{stage.explanation}</p>
          <dl class="facts">
            <StageFacts stage={stage} statistics={statistics} />
          </dl>
        </li>
      ))}
    </ol>
  );
}

const isThere = ({ latency }: Stage, statistics: DetectorStatistics): boolean =>
  latency !== undefined && statistics.latency[`${latency}_images`] !== undefined;

function StageFacts({ stage, statistics }: { stage: Stage; statistics: DetectorStatistics | null }): JSX.Element {
  const facts: [string, string][] = [];
  const { rates = {}, latency = {} } = statistics ?? {};
  if (stage.rate) facts.push(["rate", rateHz(rates[stage.rate])]);
  if (stage.id === "received") facts.push(packets(rates));
  if (stage.bytes && rates[stage.bytes] !== undefined) facts.push(["data", bytesPerSecond(rates[stage.bytes])]);
  if (stage.latency) {
    facts.push(["images", count(latency[`${stage.latency}_images`])]);
    facts.push(["half within", microseconds(latency[`${stage.latency}_p50_us`])]);
    facts.push(["99 % within", microseconds(latency[`${stage.latency}_p99_us`])]);
  }
  return (
    <>
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </>
  );
}

function packets(rates: Record<string, number>): [string, string] {
  const messages = rates.received_messages_hz;
  return messages === undefined ? ["packets", rateHz(rates.received_packets_hz)] : ["messages", rateHz(messages)];
}
