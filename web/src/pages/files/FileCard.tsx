// What is in one file.

import type { JSX } from "preact";
import type { Api, FileEntry, FileInfo } from "../../api/client";
import { CopyButton } from "../../app/CopyButton";
import { bytes, count, fileName, UNKNOWN } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { ProblemStrip } from "../../app/Strips";
import { useLoaded } from "../../app/useLoaded";
import { type CheckState, isFinished, verdict } from "./checks";
import { FileImages } from "./FileImages";
import { VERDICT_SEVERITY } from "./FileTable";
import { FileTree } from "./FileTree";
import { ratio, size } from "./facts";
import { linesFor } from "./lines";

interface CardProps {
  api: Api;
  detector: string;
  file: FileEntry;
  check: CheckState | null;
  onCheck: () => void;
}

export function FileCard({ api, detector, file, check, onCheck }: CardProps): JSX.Element {
  const { master } = file;
  const info = useLoaded(() => (isFinished(file) ? api.file(master, detector, { check: false }) : null), [master]);
  if (file.problem) {
    return (
      <section class="card" aria-label="The run without a file">
        <h2>Run {file.run} has no file</h2>
        <p>{file.problem}</p>
      </section>
    );
  }
  return (
    <>
      <section class="card stack" aria-label="The file">
        <div class="button-row">
          <h2>{fileName(master)}</h2>
          <span class="mono">{master}</span>
          <CopyButton text={master} label="Copy path" />
        </div>
        {file.state === "writing" && (
          <p class="soft">It is still being written: its newest images are on the page Live.</p>
        )}
        {info.isLoading && <p role="status">Looking into the file …</p>}
        {info.problem && <ProblemStrip problem={info.problem} />}
        {info.value && <Facts info={info.value} />}
        {isFinished(file) && <CheckText check={check ?? known(info.value)} onCheck={onCheck} />}
      </section>
      {info.value && (
        <div class="file-parts">
          <FileImages api={api} detector={detector} master={master} info={info.value} />
          <FileTree info={info.value} />
        </div>
      )}
      {isFinished(file) && <OpenCard file={file} />}
    </>
  );
}

/** What an earlier check found, for somebody else. */
const known = (info: FileInfo | null): CheckState | null =>
  info?.checks ? { kind: "done", checks: info.checks } : null;

function Facts({ info }: { info: FileInfo }): JSX.Element {
  const facts: [string, string][] = [
    ["Images", count(info.images)],
    ["Size of an image", size(info.columns, info.rows)],
    ["Type of a pixel", info.dtype],
    ["Compression", info.compression],
    ["Pixels, unpacked", bytes(info.unpacked_bytes)],
    ["Pixels in the file", bytes(info.packed_bytes)],
    ["Ratio", ratio(info.unpacked_bytes, info.packed_bytes)],
    ["All files", bytes(info.disk_bytes)],
    ["Results of an image", info.no_results ? `none: ${info.no_results}` : String(info.results.length)],
  ];
  if (info.channels.length > 0) facts.push(["Channels", info.channels.join(", ")]);
  return (
    <>
      <dl class="file-facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value || UNKNOWN}</dd>
          </div>
        ))}
      </dl>
      {info.problems.map((problem) => (
        <div class="strip warning" role="alert" key={problem}>
          <div class="strip-text">
            <SeverityWord severity="warning" word="Missing:" /> {problem}
          </div>
        </div>
      ))}
    </>
  );
}

function CheckText({ check, onCheck }: { check: CheckState | null; onCheck: () => void }): JSX.Element {
  if (check?.kind === "running") return <p role="status">Checking: every image is read and unpacked …</p>;
  const again = (
    <button type="button" class="button" onClick={onCheck}>
      {check === null ? "Check this file" : "Check it again"}
    </button>
  );
  if (check?.kind === "done") {
    const word = verdict(check.checks);
    return (
      <div class="stack">
        <p>
          <SeverityWord severity={VERDICT_SEVERITY[word]} word={word} />
          {check.checks.notes.length === 0 && ": nothing was found"}
        </p>
        {check.checks.notes.length > 0 && (
          <details class="file-check" open={word !== "valid"}>
            <summary>What was found ({check.checks.notes.length})</summary>
            <ul class="notes">
              {check.checks.notes.map((note) => (
                <li key={note}>{note}</li>
              ))}
            </ul>
          </details>
        )}
      </div>
    );
  }
  return (
    <div class="stack">
      {check?.kind === "failed" && <ProblemStrip problem={check.problem} />}
      <div class="button-row">
        {again}
        <span class="soft">Reads and unpacks every image, as konkordia check does.</span>
      </div>
    </div>
  );
}

function OpenCard({ file }: { file: FileEntry }): JSX.Element {
  return (
    <section class="card" aria-label="Open the file">
      <h2>Open it with</h2>
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
