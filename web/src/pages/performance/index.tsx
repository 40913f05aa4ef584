// Where time, images and room are: the way of the images, threads, losses, room, ledger, and the last five minutes.

import type { JSX } from "preact";
import { bytesPerSecond, count, percent, rateHz, UNKNOWN } from "../../app/format";
import { useMachine } from "../../app/machine";
import { SeverityWord } from "../../app/Shapes";
import type { PageProps } from "../../app/services";
import type { DetectorStatistics } from "../../live/types";
import { Chain } from "./Chain";
import { Chart, type Line } from "./Chart";
import { Losses } from "./Losses";
import { type LedgerRow, ledgerRows, queueName } from "./names";
import { Room } from "./Room";
import { Threads } from "./Threads";
import "./performance.css";

/** Threads and disk are looked at this often while the page is shown. */
const EVERY_MS = 2000;

const RATES: readonly Line[] = [
  { name: "received", of: ({ receivedHz }) => receivedHz },
  { name: "committed", of: ({ committedHz }) => committedHz, dash: [8, 4] },
  { name: "written", of: ({ writtenHz }) => writtenHz, dash: [2, 3] },
];
const BYTES: readonly Line[] = [{ name: "data", of: ({ bytesPerS }) => bytesPerS }];
const BUFFER: readonly Line[] = [{ name: "fullest queue", of: ({ bufferPercent }) => bufferPercent }];

export function PerformancePage({ services }: PageProps): JSX.Element {
  const statistics = services.connection.statistics.value;
  const machine = useMachine(services.machine, EVERY_MS);
  return (
    <div class="stack">
      <h1>Performance</h1>
      <Chain statistics={statistics} />
      <div class="columns">
        <Queues statistics={statistics} />
        <Room machine={machine} />
      </div>
      <Losses machine={machine} />
      <Threads machine={machine} />
      <div class="charts">
        <section class="card" aria-label="Rates">
          <Chart title="Per second, last 5 minutes" lines={RATES} show={rateHz} />
        </section>
        <section class="card" aria-label="Data rate">
          <Chart title="Bytes per second" lines={BYTES} show={bytesPerSecond} leastTop={1000} />
        </section>
        <section class="card" aria-label="Buffer">
          <Chart title="Fullest queue" lines={BUFFER} show={(value) => percent(value / 100)} mostTop={100} />
        </section>
      </div>
      <div class="columns">
        <Ledger statistics={statistics} />
        <Consumers statistics={statistics} />
      </div>
      <p class="soft">
        For Prometheus: <code>GET /metrics</code>. Packets lost before they came here: <code>konkordia doctor</code>.
      </p>
    </div>
  );
}

interface Shown {
  statistics: DetectorStatistics | null;
}

const NEARLY_FULL = 0.8;

function Queues({ statistics }: Shown): JSX.Element {
  const queues = Object.entries(statistics?.queues ?? {});
  return (
    <section class="card" aria-label="Queues">
      <h2>How full the queues are</h2>
      {queues.length === 0 && <p class="soft">{UNKNOWN} (queues exist while a run is armed or in progress)</p>}
      <div class="queues">
        {queues.map(([name, full]) => (
          <label key={name} class="queue">
            <span>{queueName(name)}</span>
            <meter min={0} max={1} high={NEARLY_FULL} value={full} />
            <span class="number">
              {full > NEARLY_FULL ? "▲ " : ""}
              {percent(full)}
            </span>
          </label>
        ))}
      </div>
    </section>
  );
}

function Ledger({ statistics }: Shown): JSX.Element {
  const rows = ledgerRows(statistics?.ledger ?? {});
  const losses = rows.filter(({ isLoss }) => isLoss).length;
  const [counted, zeros] = [rows.filter(({ value }) => value !== 0), rows.filter(({ value }) => value === 0)];
  return (
    <section class="card" aria-label="Ledger">
      <h2>Ledger of the run</h2>
      {statistics === null ? (
        <p class="soft">{UNKNOWN}</p>
      ) : (
        <p>
          <SeverityWord
            severity={losses > 0 ? "warning" : "success"}
            word={
              losses > 0
                ? `something is missing or was thrown away: ${losses === 1 ? "1 counter" : `${losses} counters`}, marked ▲`
                : "nothing was lost"
            }
          />
        </p>
      )}
      {counted.length > 0 && <Counters rows={counted} />}
      {zeros.length > 0 && (
        <details class="zeros">
          <summary>{zeros.length} counters are 0</summary>
          <Counters rows={zeros} />
        </details>
      )}
    </section>
  );
}

function Counters({ rows }: { rows: LedgerRow[] }): JSX.Element {
  return (
    <div class="table-frame">
      <table class="table">
        <thead>
          <tr>
            <th>Counter</th>
            <th class="number">Value</th>
            <th>Meaning</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, value, isLoss, meaning }) => (
            <tr key={name} class={isLoss ? "marked" : ""}>
              <td>
                {isLoss ? "▲ " : ""}
                {name.replaceAll("_", " ")}
              </td>
              <td class="number">{count(value)}</td>
              <td>{meaning}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Consumers({ statistics }: Shown): JSX.Element {
  const consumers = statistics?.consumers ?? [];
  return (
    <section class="card" aria-label="Consumers">
      <h2>Consumers of the images</h2>
      {consumers.length === 0 && (
        <p class="soft">{statistics === null ? UNKNOWN : "None is configured ([[stream]])."}</p>
      )}
      {consumers.length > 0 && (
        <div class="table-frame">
          <table class="table">
            <thead>
              <tr>
                <th>Name</th>
                <th>Address</th>
                <th>Service</th>
                <th>Connected</th>
                <th class="number">Delivered</th>
                <th class="number">Skipped</th>
                <th class="number">Waiting</th>
              </tr>
            </thead>
            <tbody>
              {consumers.map((consumer) => (
                <tr key={consumer.name}>
                  <td>{consumer.name}</td>
                  <td class="mono">{consumer.address}</td>
                  <td>{consumer.service}</td>
                  <td>
                    <SeverityWord
                      severity={consumer.connected ? "success" : "warning"}
                      word={consumer.connected ? "yes" : "no"}
                    />
                  </td>
                  <td class="number">{count(consumer.delivered)}</td>
                  <td class="number">{count(consumer.skipped)}</td>
                  <td class="number">{count(consumer.lag_images)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}
