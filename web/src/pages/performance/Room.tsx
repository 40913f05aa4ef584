// How much room there is, and for how long: disk, spool and memory.

import type { JSX } from "preact";
import type { Machine } from "../../api/client";
import { bytes, bytesPerSecond, elapsed, UNKNOWN } from "../../app/format";

type Row = readonly [name: string, value: string, note?: string | undefined];

function rowsOf({ disk, spool, memory }: Machine): Row[] {
  const atThisRate = (left: number | null | undefined): string | undefined =>
    typeof left === "number" ? `for ${elapsed(left)} at this rate` : undefined;
  const rows: Row[] = [
    ["disk free", bytes(disk.free_bytes), atThisRate(disk.left_s)],
    ["written", bytesPerSecond(disk.written_bytes_per_s), disk.directory ? `to ${disk.directory}` : undefined],
  ];
  if (spool) {
    rows.push([
      "spool free",
      bytes(spool.limit_bytes - spool.used_bytes),
      atThisRate(spool.left_s) ?? `of ${bytes(spool.limit_bytes)} in ${spool.directory}`,
    ]);
  }
  rows.push(["memory used", bytes(memory.used_bytes), `of ${bytes(memory.limit_bytes)}`]);
  return rows;
}

export function Room({ machine }: { machine: Machine | null }): JSX.Element {
  return (
    <section class="card" aria-label="Disk and memory">
      <h2>Disk and memory</h2>
      {machine === null ? (
        <p class="soft">{UNKNOWN}</p>
      ) : (
        <dl class="room">
          {rowsOf(machine).map(([name, value, note]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                {value} {note && <span class="soft">{note}</span>}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </section>
  );
}
