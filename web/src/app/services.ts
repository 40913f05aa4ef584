// What all pages share.

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { type Api, type ApiProblem, problemOf } from "../api/client";
import type { LiveConnection } from "../live/connection";
import type { Connection, DetectorStatus } from "../live/types";
import { MachineWatch } from "./machine";

export interface Services {
  connection: LiveConnection;
  api: Api;
  /** Problems with commands of the bar, newest first. */
  problems: Signal<ApiProblem[]>;
  machine: MachineWatch;
}

export interface PageProps {
  services: Services;
}

const PROBLEMS_MAX = 5;

export function makeServices(connection: LiveConnection, api: Api): Services {
  const isAsking = (): boolean => isCurrent(connection) && document.visibilityState === "visible";
  const ask = (detector: string) => api.machine(detector);
  return {
    connection,
    api,
    problems: signal([]),
    machine: new MachineWatch({ ask, isAsking, detector: connection.detector }),
  };
}

/** Shows a failure below the bar; the same one is not shown twice. */
export function report(problems: Signal<ApiProblem[]>, error: unknown): void {
  const problem = problemOf(error);
  const others = problems.value.filter(({ code, detail }) => code !== problem.code || detail !== problem.detail);
  problems.value = [problem, ...others].slice(0, PROBLEMS_MAX);
}

/** State of the detector that is shown; null if it is not known. */
export function shownStatus(connection: Connection): DetectorStatus | null {
  const name = connection.detector.value;
  return connection.detectors.value?.find(({ detector }) => detector === name) ?? null;
}

/** True if what is shown is what the service says now. */
export function isCurrent(connection: { contact: ReadonlySignal<{ kind: string }> }): boolean {
  return connection.contact.value.kind === "connected";
}
