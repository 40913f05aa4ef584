// Arm, Start, Trigger, Stop and Cancel; under each that is not possible now stands why.

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { type ApiProblem, problemOf } from "../../api/client";
import { type Verb, whyNot } from "../../app/commands";
import { useEnding } from "../../app/EndButtons";
import { clock } from "../../app/format";
import type { Services } from "../../app/services";
import type { DetectorStatus, ServiceEvent } from "../../live/types";
import type { Checked } from "./form";

interface CommandsProps {
  services: Services;
  status: DetectorStatus | null;
  checked: Checked;
  problem: Signal<ApiProblem | null>;
}

const BUTTONS: readonly (readonly [Exclude<Verb, "pedestal">, string, string])[] = [
  ["arm", "Arm", "button"],
  ["start", "Start", "button primary"],
  ["trigger", "Trigger", "button"],
  ["stop", "Stop", "button"],
  ["cancel", "Cancel", "button danger"],
];

export function Commands({ services, status, checked, problem }: CommandsProps): JSX.Element {
  const sending = useSignal<Verb | null>(null);
  const contact = services.connection.contact.value;
  const send = async (verb: Exclude<Verb, "pedestal">): Promise<void> => {
    if (status === null) return;
    sending.value = verb;
    problem.value = null;
    try {
      await command(services, verb, status, checked);
    } catch (error) {
      problem.value = problemOf(error);
    } finally {
      sending.value = null;
    }
  };
  const { end, question } = useEnding({ services, status }, (verb) => void send(verb));
  const isWrong = Object.keys(checked.wrong).length > 0;
  const reason = (verb: Verb): string | null => {
    if (sending.value !== null && verb !== "cancel") return `waiting for the answer to ${sending.value}`;
    const state = whyNot(verb, contact, status);
    const takesForm = verb === "arm" || (verb === "start" && status?.state !== "armed");
    return state ?? (takesForm && isWrong ? "a field of the form is wrong" : null);
  };
  return (
    <div class="command-row">
      {BUTTONS.map(([verb, words, className]) => {
        const why = reason(verb);
        return (
          <div class="command" key={verb}>
            <button
              type="button"
              class={className}
              disabled={why !== null}
              aria-describedby={`why-${verb}`}
              onClick={() => (verb === "stop" || verb === "cancel" ? end(verb) : void send(verb))}
            >
              {sending.value === verb ? `${words} …` : words}
            </button>
            <span class="soft command-why" id={`why-${verb}`}>
              {why ?? effect(verb, status)}
            </span>
          </div>
        );
      })}
      {question}
    </div>
  );
}

function command(services: Services, verb: Exclude<Verb, "pedestal">, status: DetectorStatus, checked: Checked) {
  const { api } = services;
  if (verb === "arm") return api.arm(status.detector, checked.request);
  // What is armed already cannot be changed by a start.
  if (verb === "start") return api.start(status.detector, status.state === "armed" ? null : checked.request);
  return api.command(verb, status.detector);
}

function effect(verb: Verb, status: DetectorStatus | null): string {
  switch (verb) {
    case "arm":
      return "makes everything ready";
    case "start":
      return status?.state === "armed" ? "starts the run that is armed, as it was armed" : "arms and starts";
    case "trigger":
      return "makes the detector expose";
    case "stop":
      return "ends the run, keeps what has arrived";
    default:
      return status?.state === "error" ? "clears the error" : "ends the run at once";
  }
}

/** Who did something last: with two operators at one detector each wants to know of the other. */
export function LastCommand({
  events,
  detector,
}: {
  events: ServiceEvent[];
  detector: string | null;
}): JSX.Element | null {
  const last = events.filter((event) => event.event === "command" && event.detector === detector).at(-1);
  if (last === undefined) return null;
  return (
    <p class="soft" aria-live="polite">
      Last command, {clock(new Date(last.time))}: {last.message}
    </p>
  );
}
