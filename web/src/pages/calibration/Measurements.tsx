// The last measurements of pedestals, with what each module gave.

import type { JSX } from "preact";
import { count, dateAndTime, UNKNOWN } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { ProblemStrip } from "../../app/Strips";
import type { Services } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import { type Measurement, measurement, mergeEvents, type PedestalRow } from "./pedestal";

const SHOWN_MAX = 10;

export function Measurements({ services }: { services: Services }): JSX.Element {
  const { connection, api } = services;
  const detector = connection.detector.value;
  const older = useLoaded(() => (detector === null ? null : api.logs({ detector })), [detector]);
  const events = mergeEvents(older.value ?? [], connection.events.value);
  const shown = events
    .filter((event) => event.event === "pedestal" && event.detector === detector)
    .slice(-SHOWN_MAX)
    .reverse()
    .map(measurement);
  return (
    <section class="card" aria-label="Last measurements">
      <h2>Last measurements</h2>
      {older.problem && <ProblemStrip problem={older.problem} />}
      {shown.length === 0 && <p class="soft">None among the last events of the service.</p>}
      {shown.map((one, place) => (
        <OneMeasurement key={`${one.time} ${one.id}`} one={one} isOpen={place === 0} />
      ))}
    </section>
  );
}

function OneMeasurement({ one, isOpen }: { one: Measurement; isOpen: boolean }): JSX.Element {
  return (
    <details class="measurement" open={isOpen}>
      <summary>
        <SeverityWord severity={one.severity} /> {dateAndTime(one.time)} · {one.message}
      </summary>
      {one.hint && <p>What to do: {one.hint}</p>}
      {one.rows.length > 0 && <ModuleTable rows={one.rows} />}
    </details>
  );
}

const adu = (value: number | null, places: number): string => (value === null ? UNKNOWN : value.toFixed(places));

function ModuleTable({ rows }: { rows: PedestalRow[] }): JSX.Element {
  return (
    <div class="table-frame">
      <table class="table">
        <thead>
          <tr>
            <th>Module</th>
            <th>Cell</th>
            <th>Stage</th>
            <th class="number">Frames</th>
            <th class="number">Median pedestal (ADU)</th>
            <th class="number">Median RMS (ADU)</th>
            <th class="number">Masked pixels</th>
            <th>Verdict</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={`${row.module} ${row.cell} ${row.stage}`} class={row.isGood ? "" : "marked"}>
              <td>{row.module}</td>
              <td>{row.cell}</td>
              <td>{row.stage}</td>
              <td class="number">{count(row.frames)}</td>
              <td class="number">{adu(row.pedestalAdu, 1)}</td>
              <td class="number">{adu(row.rmsAdu, 2)}</td>
              <td class="number">{count(row.maskedPixels)}</td>
              <td>
                <SeverityWord severity={row.isGood ? "success" : "warning"} word={row.verdict} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
