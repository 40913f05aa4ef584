// The alarms of the detector: how many are raised, and on request what they say.

import type { JSX } from "preact";
import type { DetectorStatus } from "../live/types";
import { dateAndTime } from "./format";
import { SeveritySign } from "./Shapes";

export function Alarms({ status }: { status: DetectorStatus | null }): JSX.Element {
  const alarms = status?.alarms ?? [];
  const raised = alarms.filter((alarm) => alarm.raised);
  if (status === null || alarms.length === 0) {
    return (
      <span class="bar-number" title="No alarm is configured: [alarms]">
        <span class="bar-name">alarms</span>
        <span class="bar-value">–</span>
      </span>
    );
  }
  return (
    <details class="alarms">
      <summary class={raised.length > 0 ? "severity error" : "severity success"}>
        <SeveritySign severity={raised.length > 0 ? "warning" : "success"} />
        <span aria-live="polite">
          {raised.length} {raised.length === 1 ? "alarm" : "alarms"}
        </span>
      </summary>
      <ul class="card alarm-list">
        {alarms.map(({ name, raised: isRaised, message, hint, since }) => (
          <li key={name}>
            <strong>{name.replaceAll("_", " ")}</strong>{" "}
            {isRaised ? `raised since ${dateAndTime(since)}` : "not raised"}
            {isRaised && message && <p>{message}</p>}
            {isRaised && hint && <p class="soft">What to do: {hint}</p>}
          </li>
        ))}
      </ul>
    </details>
  );
}
