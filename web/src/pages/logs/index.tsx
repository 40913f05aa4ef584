// What happened: events as they come, and older ones of the service.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { ServiceEvent } from "../../api/client";
import { CopyButton } from "../../app/CopyButton";
import { Check, ChoiceField, TextField } from "../../app/Field";
import { dateAndTime } from "../../app/format";
import { SeverityWord } from "../../app/Shapes";
import { ProblemStrip } from "../../app/Strips";
import type { PageProps } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import { mergeEvents } from "../calibration/pedestal";
import { type Filter, isShown, type Level } from "./filter";

const LEVELS: readonly (readonly [Level, string])[] = [
  ["info", "everything"],
  ["warning", "warnings and errors"],
  ["error", "errors"],
];
const ALL = "";

export function LogsPage({ services }: PageProps): JSX.Element {
  const { connection, api } = services;
  const filter = useSignal<Filter>({ level: "info", text: "", detector: null });
  const isFollowing = useSignal(true);
  // After a loss of contact the events between are asked for again.
  const contact = connection.contact.value.kind;
  const older = useLoaded(() => (contact === "connected" ? api.logs({}) : null), [contact]);
  const shown = mergeEvents(older.value ?? [], connection.events.value).filter((event) => isShown(event, filter.value));
  const names = connection.detectors.value?.map(({ detector }) => detector) ?? [];
  const change = (fields: Partial<Filter>): void => {
    filter.value = { ...filter.value, ...fields };
  };
  return (
    <section class="stack logs-page" aria-label="Logs">
      <h1>Logs</h1>
      <div class="fields">
        <ChoiceField
          label="Severity"
          value={filter.value.level}
          choices={LEVELS}
          onInput={(level) => change({ level: level as Level })}
        />
        <TextField
          label="Words"
          placeholder="in message, event or detector"
          value={filter.value.text}
          onInput={(text) => change({ text })}
        />
        {names.length > 1 && (
          <ChoiceField
            label="Detector"
            value={filter.value.detector ?? ALL}
            choices={[[ALL, "all"], ...names.map((name) => [name, name] as const)]}
            onInput={(detector) => change({ detector: detector === ALL ? null : detector })}
          />
        )}
      </div>
      <div class="button-row">
        <Check
          label="Follow the newest"
          isOn={isFollowing.value}
          onInput={(isOn) => {
            isFollowing.value = isOn;
          }}
        />
        <CopyButton text={() => JSON.stringify(shown, null, 2)} label="Copy as JSON" />
        <span class="soft">
          {shown.length} events{older.isLoading ? ", asking for older ones …" : ""}
        </span>
      </div>
      {older.problem && <ProblemStrip problem={older.problem} />}
      <EventList events={shown} isFollowing={isFollowing.value} />
    </section>
  );
}

function EventList({ events, isFollowing }: { events: ServiceEvent[]; isFollowing: boolean }): JSX.Element {
  const frame = useRef<HTMLElement>(null);
  useEffect(() => {
    if (isFollowing && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  }, [events.at(-1)?.time, events.length, isFollowing]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled must be reached with the keyboard.
    <section class="table-frame log-frame" ref={frame} tabIndex={0} aria-label="Events">
      <table class="table">
        <thead>
          <tr>
            <th>Time</th>
            <th>Severity</th>
            <th>Detector</th>
            <th>Event</th>
            <th>Message</th>
          </tr>
        </thead>
        <tbody>
          {events.map((event) => (
            <EventRow key={`${event.time} ${event.id}`} event={event} />
          ))}
        </tbody>
      </table>
    </section>
  );
}

function EventRow({ event }: { event: ServiceEvent }): JSX.Element {
  return (
    <tr class={event.severity === "warning" || event.severity === "error" ? "marked" : ""}>
      <td class="number">{dateAndTime(event.time)}</td>
      <td>
        <SeverityWord severity={event.severity} />
      </td>
      <td class="log-detector">{event.detector ?? ""}</td>
      <td>{event.event}</td>
      <td class="log-message">{event.message}</td>
    </tr>
  );
}
