// One row for each file.

import type { JSX } from "preact";
import type { FileEntry } from "../../api/client";
import { bytes, count, fileName, UNKNOWN } from "../../app/format";
import { type Severity, SeverityWord } from "../../app/Shapes";
import type { DetectorStatus } from "../../live/types";
import { type CheckState, type Checks, checkOf, isFinished, verdict } from "./checks";
import { ratio } from "./facts";

const STATE_SEVERITY: Record<string, Severity> = {
  writing: "info",
  complete: "success",
  incomplete: "warning",
  failed: "error",
};

export const VERDICT_SEVERITY: Record<ReturnType<typeof verdict>, Severity> = {
  valid: "success",
  "valid, not complete": "warning",
  "not valid": "error",
};

interface TableProps {
  entries: FileEntry[];
  /** The file that is being written has its numbers in the status; its entry has them when it is closed. */
  status: DetectorStatus | null;
  shown: FileEntry | undefined;
  checks: Checks;
  onChoose: (master: string) => void;
}

export function FileTable({ entries, status, shown, checks, onChoose }: TableProps): JSX.Element {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled must be reached with the keyboard.
    <section class="table-frame file-table" tabIndex={0} aria-label="Table of files">
      <table class="table">
        <thead>
          <tr>
            <th>File</th>
            <th class="number">Run</th>
            <th>State</th>
            <th class="number">Images</th>
            <th class="number">Size</th>
            <th class="number">Ratio</th>
            <th>Ended</th>
            <th>Check</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((file) => (
            <FileRow
              key={`${file.run} ${file.master}`}
              file={file}
              status={file.state === "writing" && status?.run === file.run ? status : null}
              isShown={file === shown}
              check={checkOf(checks, file)}
              onChoose={() => onChoose(file.master)}
              onCheck={() => checks.run(file)}
            />
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface RowProps {
  file: FileEntry;
  status: DetectorStatus | null;
  isShown: boolean;
  check: CheckState | null;
  onChoose: () => void;
  onCheck: () => void;
}

function FileRow({ file, status, isShown, check, onChoose, onCheck }: RowProps): JSX.Element {
  const isOpen = file.state === "writing";
  return (
    <tr class={isShown ? "chosen" : ""}>
      <td>
        {file.problem ? (
          <span class="wrapped">No file: {file.problem}</span>
        ) : (
          <button type="button" class="row-button" aria-pressed={isShown} title={file.master} onClick={onChoose}>
            {fileName(file.master)}
          </button>
        )}
      </td>
      <td class="number">{file.run}</td>
      <td>
        <SeverityWord severity={STATE_SEVERITY[file.state] ?? "info"} word={file.state} />
      </td>
      <td class="number">
        {count(isOpen ? status?.images_written : file.images)} of{" "}
        {count(isOpen ? status?.images_expected : file.images_expected)}
      </td>
      <td class="number">{isOpen ? UNKNOWN : bytes(file.bytes)}</td>
      <td class="number">{isOpen ? UNKNOWN : ratio(file.unpacked_bytes, file.bytes)}</td>
      <td>{file.ended ?? UNKNOWN}</td>
      <td>{isFinished(file) ? <CheckCell name={fileName(file.master)} check={check} onCheck={onCheck} /> : UNKNOWN}</td>
    </tr>
  );
}

interface CellProps {
  name: string;
  check: CheckState | null;
  onCheck: () => void;
}

function CheckCell({ name, check, onCheck }: CellProps): JSX.Element {
  if (check?.kind === "running") return <span role="status">Checking …</span>;
  if (check?.kind === "done") {
    const word = verdict(check.checks);
    return <SeverityWord severity={VERDICT_SEVERITY[word]} word={word} />;
  }
  return (
    <button type="button" class="button" aria-label={`Check ${name}`} onClick={onCheck}>
      {check?.kind === "failed" ? "Check again" : "Check"}
    </button>
  );
}
