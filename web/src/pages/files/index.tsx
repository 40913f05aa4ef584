// The files of the last runs: their state, what is in them, whether they are whole, their images, and how to open them.

import { useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { UNKNOWN } from "../../app/format";
import { ProblemStrip } from "../../app/Strips";
import { type PageProps, shownStatus } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import { checkOf, useChecks } from "./checks";
import { FileCard } from "./FileCard";
import { FileTable } from "./FileTable";
import "./files.css";

const OF_FILES = new Set(["file", "run_started", "run_ended", "travel", "spool"]);

export function FilesPage({ services }: PageProps): JSX.Element {
  const { connection, api } = services;
  const detector = connection.detector.value;
  const lastChange = useComputed(() => connection.events.value.filter(({ event }) => OF_FILES.has(event)).at(-1)?.time);
  const contact = connection.contact.value.kind;
  const files = useLoaded(
    () =>
      detector === null || contact !== "connected"
        ? null
        : api.files(detector).then((entries) => ({ detector, entries: [...entries].reverse() })),
    [detector, contact, lastChange.value],
  );
  // Those of the detector before mean nothing for this one.
  const entries = files.value?.detector === detector ? files.value.entries : null;
  const chosen = useSignal<string | null>(null);
  const checks = useChecks(api, detector);
  const shown = entries?.find(({ master }) => master !== "" && master === chosen.value) ?? entries?.[0];
  const status = shownStatus(connection);
  return (
    <div class="stack">
      <section class="stack" aria-label="Files of the last runs">
        <h1>Files of the last runs</h1>
        {files.problem && <ProblemStrip problem={files.problem} />}
        {entries === null && !files.problem && <p class="soft">{UNKNOWN}</p>}
        {entries?.length === 0 && <p class="soft">No file has been written since the service began.</p>}
        {entries !== null && entries.length > 0 && (
          <FileTable
            entries={entries}
            status={status}
            shown={shown}
            checks={checks}
            onChoose={(master) => {
              chosen.value = master;
            }}
          />
        )}
      </section>
      {shown && detector !== null && (
        <FileCard
          key={`${shown.run} ${shown.master} ${shown.state}`}
          api={api}
          detector={detector}
          file={shown}
          check={checkOf(checks, shown)}
          onCheck={() => checks.run(shown)}
        />
      )}
    </div>
  );
}
