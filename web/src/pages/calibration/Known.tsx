// The calibration that the next run uses: how old it is, where it is, whether it is time for a new one.

import type { JSX } from "preact";
import type { CalibrationReport, NextCalibration } from "../../api/client";
import { dateAndTime, UNKNOWN } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { ProblemStrip } from "../../app/Strips";
import type { Loaded } from "../../app/useLoaded";
import type { DetectorStatus } from "../../live/types";
import { ageOf, ageWords } from "./report";

/** `laterS`: seconds since the report came. */
export function UsedCalibration({ loaded, laterS }: { loaded: Loaded<NextCalibration>; laterS: number }): JSX.Element {
  const { value, problem, isLoading } = loaded;
  const none = problem ? null : value?.none;
  return (
    <section class="card" aria-label="Calibration of the next run">
      <h2>Calibration of the next run</h2>
      {problem && <ProblemStrip problem={problem} />}
      {none && (
        <p>
          {none.detail}. {none.hint && <span class="soft">What to do: {none.hint}</span>}
        </p>
      )}
      {!problem && value === null && (
        <p class="soft">{isLoading ? "It is read; of millions of pixels that takes seconds." : UNKNOWN}</p>
      )}
      {!problem && value?.calibration && <Facts report={value.calibration} laterS={laterS} />}
    </section>
  );
}

function Facts({ report, laterS }: { report: CalibrationReport; laterS: number }): JSX.Element {
  const { words, limit, isTooOld } = ageOf(report, laterS);
  const { previous, refused } = report;
  const facts: [string, string][] = [
    ["taken", dateAndTime(report.taken)],
    ["pedestals", report.files.join(", ")],
    ...(report.gain_files.length > 0 ? [["gains", report.gain_files.join(", ")] as [string, string]] : []),
    ["storage cells", report.cells.length > 0 ? report.cells.join(", ") : "for all"],
    ["detector", report.detector_serial || UNKNOWN],
    [
      "previous",
      previous
        ? `${previous.file}, taken ${ageWords(previous.age_s)}${previous.age_s == null ? "" : " ago"}`
        : "none is kept",
    ],
  ];
  return (
    <>
      <p class="calibration-age">
        <SeverityWord severity={isTooOld ? "warning" : "success"} word={words} />
      </p>
      {limit && <p class="soft">{limit}</p>}
      {refused && (
        <p>
          <SeverityWord severity="error" word="A run would refuse it:" /> {refused.detail}. <strong>What to do:</strong>{" "}
          {refused.hint}
        </p>
      )}
      <dl class="facts">
        {facts.map(([name, text]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd class="mono">{text}</dd>
          </div>
        ))}
      </dl>
    </>
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
                  word={
                    alarm.raised ? `raised since ${dateAndTime(alarm.since)}` : "no alarm; watched while a run goes on"
                  }
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
