// The files of the last runs, and how to open them.

import { useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { FileEntry } from "../../api/client";
import { CopyButton } from "../../app/CopyButton";
import { bytes, count, fileName, UNKNOWN } from "../../app/format";
import { type Severity, SeverityWord } from "../../app/Shapes";
import { ProblemStrip } from "../../app/Strips";
import { type PageProps, shownStatus } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import { linesFor } from "./lines";

const OF_FILES = new Set(["file", "run_started", "run_ended", "travel", "spool"]);

export function FilesPage({ services }: PageProps): JSX.Element {
  const { connection, api } = services;
  const detector = connection.detector.value;
  const lastChange = useComputed(() => connection.events.value.filter(({ event }) => OF_FILES.has(event)).at(-1)?.time);
  const contact = connection.contact.value.kind;
  const files = useLoaded(
    () => (detector === null || contact !== "connected" ? null : api.files(detector)),
    [detector, contact, lastChange.value],
  );
  const chosen = useSignal<string | null>(null);
  const entries = [...(files.value ?? [])].reverse();
  const shown = entries.find(({ master }) => master === chosen.value) ?? entries[0];
  const written = shownStatus(connection)?.images_written;
  return (
    <div class="stack">
      <section class="stack" aria-label="Files of the last runs">
        <h1>Files of the last runs</h1>
        {files.problem && <ProblemStrip problem={files.problem} />}
        {files.value === null && !files.problem && <p class="soft">{UNKNOWN}</p>}
        {files.value !== null && entries.length === 0 && (
          <p class="soft">No file has been written since the service began.</p>
        )}
        {entries.length > 0 && (
          <FileTable
            entries={entries}
            written={written}
            shown={shown}
            onChoose={(master) => {
              chosen.value = master;
            }}
          />
        )}
      </section>
      {shown && <OpenCard file={shown} />}
    </div>
  );
}

const STATE_SEVERITY: Record<string, Severity> = {
  writing: "info",
  complete: "success",
  incomplete: "warning",
  failed: "error",
};

interface TableProps {
  entries: FileEntry[];
  /** Images of the file that is being written, by the status; its entry has them when it is closed. */
  written: number | undefined;
  shown: FileEntry | undefined;
  onChoose: (master: string) => void;
}

function FileTable({ entries, written, shown, onChoose }: TableProps): JSX.Element {
  return (
    <div class="table-frame file-table">
      <table class="table">
        <thead>
          <tr>
            <th>File</th>
            <th class="number">Run</th>
            <th>State</th>
            <th class="number">Images</th>
            <th class="number">Packed pixels</th>
            <th>Ended</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((file) => {
            const isOpen = file.state === "writing";
            return (
              <tr key={`${file.run} ${file.master}`} class={file === shown ? "chosen" : ""}>
                <td>
                  <button
                    type="button"
                    class="row-button"
                    aria-pressed={file === shown}
                    title={file.master}
                    onClick={() => onChoose(file.master)}
                  >
                    {fileName(file.master)}
                  </button>
                </td>
                <td class="number">{file.run}</td>
                <td>
                  <SeverityWord severity={STATE_SEVERITY[file.state] ?? "info"} word={file.state} />
                </td>
                <td class="number">{count(isOpen ? written : file.images)}</td>
                <td class="number">{isOpen ? UNKNOWN : bytes(file.bytes)}</td>
                <td>{file.ended ?? UNKNOWN}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function OpenCard({ file }: { file: FileEntry }): JSX.Element {
  return (
    <section class="card" aria-label="Open the file">
      <div class="button-row">
        <h2>{fileName(file.master)}</h2>
        <span class="mono">{file.master}</span>
        <CopyButton text={file.master} label="Copy path" />
      </div>
      <div class="open-lines">
        {linesFor(file.master, file.images).map(({ program, note, text }) => (
          <div key={program}>
            <div class="button-row">
              <h3>{program}</h3>
              <CopyButton text={text} label={`Copy for ${program}`} />
            </div>
            {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled must be reached with the keyboard. */}
            <pre class="snippet" tabIndex={0}>
              {text}
            </pre>
            <p class="soft">{note}</p>
          </div>
        ))}
      </div>
    </section>
  );
}
