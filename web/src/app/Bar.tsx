// The bar on each page: what the detector does now, in numbers, and how to end it.

import type { JSX } from "preact";
import type { Machine } from "../api/client";
import type { DetectorStatistics, DetectorStatus } from "../live/types";
import { Alarms } from "./Alarms";
import { EndButtons } from "./EndButtons";
import { bytes, bytesPerSecond, count, duration, elapsed, fileName, percent, rateHz, UNKNOWN } from "./format";
import { useMachine } from "./machine";
import { operatorWords } from "./operator";
import { SeverityWord, STATE_WORDS, StateSign, shownState } from "./Shapes";
import { isCurrent, type Services, shownStatus } from "./services";

/** The free space changes slowly. */
const DISK_EVERY_MS = 10_000;

export function Bar({ services }: { services: Services }): JSX.Element {
  const { connection } = services;
  const status = shownStatus(connection);
  const statistics = connection.statistics.value;
  const machine = useMachine(services.machine, DISK_EVERY_MS);
  return (
    <section class={isCurrent(connection) ? "bar" : "bar old"} aria-label="State of the detector">
      <div class="bar-row">
        <StateChip status={status} />
        <Progress status={status} statistics={statistics} />
        <Numbers status={status} statistics={statistics} />
        <DiskNumber machine={machine} />
        <Alarms status={status} />
        <EndButtons services={services} status={status} />
      </div>
      <Words status={status} />
    </section>
  );
}

function StateChip({ status }: { status: DetectorStatus | null }): JSX.Element {
  const state = shownState(status);
  return (
    <span class={`state ${state}`} role="status" aria-live="polite">
      <StateSign state={state} />
      <span class="hidden-text">State: </span>
      {STATE_WORDS[state]}
    </span>
  );
}

interface Shown {
  status: DetectorStatus | null;
  statistics: DetectorStatistics | null;
}

/** Images per second: of packets as they come; streams know only what is committed. */
export function imageRateHz(statistics: DetectorStatistics | null): number | undefined {
  return statistics?.rates.received_hz ?? statistics?.rates.committed_hz;
}

export function bytesRate(statistics: DetectorStatistics | null): number | undefined {
  return statistics?.rates.received_bytes_per_s ?? statistics?.rates.committed_bytes_per_s;
}

/** The fullest queue is the one that loses images first. */
export function fullestQueue(statistics: DetectorStatistics | null): number | undefined {
  const queues = Object.values(statistics?.queues ?? {});
  return queues.length > 0 ? Math.max(...queues) : undefined;
}

/** Seconds to the planned end at the present rate; unknown without a plan or without images. */
export function secondsLeft(status: DetectorStatus | null, rate: number | undefined): number | undefined {
  if (status?.state !== "running" || status.draining || !rate) return undefined;
  const expected = status.images_expected;
  return typeof expected === "number" ? Math.max(0, expected - status.images_committed) / rate : undefined;
}

function Progress({ status, statistics }: Shown): JSX.Element {
  const { progress, images_expected: expected } = status ?? {};
  const left = secondsLeft(status, imageRateHz(statistics));
  return (
    <span class="progress">
      {typeof progress === "number" && <progress value={progress} max={1} aria-label="Images of the run" />}
      <span>
        {count(status?.images_committed)}
        {typeof expected === "number" ? ` of ${count(expected)}` : ""} images
        {typeof progress === "number" ? `, ${percent(progress)}` : ""}
        {left === undefined ? "" : `, ${duration(left)} left`}
      </span>
    </span>
  );
}

interface NumberProps {
  name: string;
  value: string;
  isBad?: boolean;
  title?: string;
}

function BarNumber({ name, value, isBad, title }: NumberProps): JSX.Element {
  return (
    <span class={isBad ? "bar-number bad" : "bar-number"} title={title ?? ""}>
      <span class="bar-name">
        {isBad ? "▲ " : ""}
        {name}
      </span>
      <span class="bar-value">{value}</span>
    </span>
  );
}

const NEARLY_FULL = 0.8;

function Numbers({ status, statistics }: Shown): JSX.Element {
  const buffer = fullestQueue(statistics);
  const { images_lost: lost, images_partial: partial } = status ?? {};
  return (
    <>
      <BarNumber name="rate" value={rateHz(imageRateHz(statistics))} title="Images per second, over the last second" />
      <BarNumber name="data" value={bytesPerSecond(bytesRate(statistics))} />
      <BarNumber name="lost" value={count(lost)} isBad={Boolean(lost)} title="Images of which nothing came" />
      <BarNumber
        name="partial"
        value={count(partial)}
        isBad={Boolean(partial)}
        title="Images of which parts are missing"
      />
      <BarNumber
        name="buffer"
        value={percent(buffer)}
        isBad={(buffer ?? 0) > NEARLY_FULL}
        title="How full the fullest queue is"
      />
    </>
  );
}

/** A disk that is full in this time needs somebody now. */
const DISK_SOON_S = 900;

function DiskNumber({ machine }: { machine: Machine | null }): JSX.Element {
  const { free_bytes: free, left_s: left, directory } = machine?.disk ?? {};
  const isKnown = typeof left === "number";
  const where = `Free where the files go${directory ? `, ${directory}` : ""}`;
  return (
    <BarNumber
      name="disk free"
      value={bytes(free)}
      isBad={isKnown && left < DISK_SOON_S}
      title={isKnown ? `${where}; for ${elapsed(left)} at this rate` : where}
    />
  );
}

function Words({ status }: { status: DetectorStatus | null }): JSX.Element {
  if (status === null) return <div class="bar-words soft">{UNKNOWN}</div>;
  const operator = operatorWords(status);
  return (
    <div class="bar-words">
      {operator !== null && <span class="bar-operator">{operator}</span>}
      <span class="bar-message">
        <SeverityWord severity={status.severity} /> {status.message}
        {status.hint && <span class="soft"> What to do: {status.hint}</span>}
      </span>
      <span class="soft bar-file" title={status.file ?? ""}>
        file {fileName(status.file)}
      </span>
      <span class="soft">for {duration(status.state_age_s)}</span>
    </div>
  );
}
