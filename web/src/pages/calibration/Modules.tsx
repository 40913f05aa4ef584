// What each module gave in each storage cell and gain stage.

import type { JSX } from "preact";
import type { CalibrationReport, CalibrationRow } from "../../api/client";
import { UNKNOWN } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { adu, type ModuleOfCell, maskedWords, modulesOf, remarksOf, shift, stageName } from "./report";

export function Modules({ report }: { report: CalibrationReport }): JSX.Element {
  const modules = modulesOf(report.rows);
  const hasCells = report.cells.length > 0;
  const first = stageName(report.stages[0] ?? "g0");
  return (
    <section class="card" aria-label="Modules">
      <h2>Modules</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled must be reached with the keyboard. */}
      <section class="table-frame calibration-table" tabIndex={0} aria-label="Table of the modules">
        <table class="table">
          <thead>
            <tr>
              <th>Module</th>
              {hasCells && <th>Cell</th>}
              {report.stages.map((stage) => (
                <th key={stage} class="number">
                  {stageName(stage)} (ADU)
                </th>
              ))}
              <th>Masked pixels</th>
              {report.previous && (
                <th class="number" title="Since the previous calibration">
                  Shift of {first} (ADU)
                </th>
              )}
              <th>Verdict</th>
            </tr>
          </thead>
          <tbody>
            {modules.map((one) => (
              <ModuleRow key={`${one.cell} ${one.module}`} one={one} report={report} hasCells={hasCells} />
            ))}
          </tbody>
        </table>
      </section>
      <p class="soft">Pedestal ± noise of each gain stage: medians of the pixels that are not masked.</p>
    </section>
  );
}

interface RowProps {
  one: ModuleOfCell;
  report: CalibrationReport;
  hasCells: boolean;
}

function ModuleRow({ one, report, hasCells }: RowProps): JSX.Element {
  const remarks = remarksOf(one);
  const ofStage = (stage: string): CalibrationRow | undefined => one.stages.find((row) => row.stage === stage);
  return (
    <tr class={remarks === null ? "" : "marked"}>
      <td>{one.module}</td>
      {hasCells && <td>{one.cell ?? UNKNOWN}</td>}
      {report.stages.map((stage) => {
        const row = ofStage(stage);
        return (
          <td key={stage} class="number">
            {adu(row?.median_pedestal_adu, 1)} ± {adu(row?.median_rms_adu, 2)}
          </td>
        );
      })}
      <td class="masked-pixels">
        {one.stages.map((row) => (
          <div key={row.stage}>
            {stageName(row.stage)} {maskedWords(row)}
          </div>
        ))}
      </td>
      {report.previous && (
        <td class="number">{shift(ofStage(report.stages[0] ?? "")?.since_previous?.median_shift_adu)}</td>
      )}
      <td class="module-verdict">
        <SeverityWord severity={remarks === null ? "success" : "warning"} word={remarks === null ? "OK" : "WARN"} />
        {remarks !== null && <div>{remarks}</div>}
      </td>
    </tr>
  );
}
