// What the service tells of the calibration that is in use; no more than that.

import type { JSX } from "preact";
import { dateAndTime, UNKNOWN } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { ProblemStrip } from "../../app/Strips";
import type { Services } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import type { DetectorStatus } from "../../live/types";

export function ConfiguredCalibration({ services }: { services: Services }): JSX.Element {
  const { connection, api } = services;
  const detector = connection.detector.value;
  const { value, problem } = useLoaded(() => (detector === null ? null : api.configuration(detector)), [detector]);
  const calibration = value?.calibration;
  const entries = typeof calibration === "object" && calibration !== null ? Object.entries(calibration) : [];
  return (
    <section class="card" aria-label="Configured calibration">
      <h2>Configured calibration</h2>
      {problem && <ProblemStrip problem={problem} />}
      {value === null ? <p class="soft">{UNKNOWN}</p> : null}
      {value !== null && entries.length === 0 && (
        <p class="soft">
          The service does not tell which calibration file is configured. On its machine,{" "}
          <code>konkordia config check</code> and <code>konkordia calibration show FILE</code> do.
        </p>
      )}
      <dl class="facts">
        {entries.map(([name, entry]) => (
          <div key={name}>
            <dt>{name.replaceAll("_", " ")}</dt>
            <dd class="mono">{typeof entry === "string" ? entry : JSON.stringify(entry)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

const OF_CALIBRATION = [
  ["pedestal_age", "age of the pedestals", "pedestal_age_hours"],
  ["pedestal_drift", "drift of the pedestals", "pedestal_drift_adu"],
] as const;

export function CalibrationAlarms({ status }: { status: DetectorStatus | null }): JSX.Element {
  return (
    <section class="card" aria-label="Alarms of the calibration">
      <h2>Is it time for new pedestals?</h2>
      <ul class="plain-list">
        {OF_CALIBRATION.map(([name, words, key]) => {
          const alarm = status?.alarms?.find((other) => other.name === name);
          return (
            <li key={name}>
              <strong>{words}</strong>{" "}
              {alarm === undefined ? (
                <span class="soft">
                  not watched (<code>[alarms] {key}</code>)
                </span>
              ) : (
                <SeverityWord
                  severity={alarm.raised ? "warning" : "success"}
                  word={alarm.raised ? `raised since ${dateAndTime(alarm.since)}` : "within its limit"}
                />
              )}
              {alarm?.raised && alarm.message && <p>{alarm.message}</p>}
              {alarm?.raised && alarm.hint && <p class="soft">What to do: {alarm.hint}</p>}
            </li>
          );
        })}
      </ul>
    </section>
  );
}
