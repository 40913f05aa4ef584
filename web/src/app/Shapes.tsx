// Small signs: a shape of its own for each meaning, so that colour is never alone.

import type { JSX } from "preact";
import type { DetectorStatus } from "../live/types";

export type Severity = DetectorStatus["severity"];

const Sign = ({ children }: { children: JSX.Element | JSX.Element[] }): JSX.Element => (
  <svg class="shape" viewBox="0 0 14 14" aria-hidden="true">
    {children}
  </svg>
);

const SEVERITY_PATHS: Record<Severity, string> = {
  success: "M2 7.5 5.5 11 12 3.5",
  info: "M7 6.5v4M7 3.6v.3M1.2 7a5.8 5.8 0 1 0 11.6 0a5.8 5.8 0 1 0-11.6 0",
  warning: "M7 1.5 13 12.5H1zM7 5.5v3.5M7 10.6v.4",
  error: "M2.5 2.5l9 9M11.5 2.5l-9 9",
};

export function SeveritySign({ severity }: { severity: Severity }): JSX.Element {
  return (
    <Sign>
      <path d={SEVERITY_PATHS[severity]} fill="none" stroke="currentColor" stroke-width="1.8" stroke-linecap="round" />
    </Sign>
  );
}

/** A severity in sign and word. */
export function SeverityWord({ severity, word }: { severity: Severity; word?: string }): JSX.Element {
  return (
    <span class={`severity ${severity}`}>
      <SeveritySign severity={severity} />
      {word ?? severity}
    </span>
  );
}

export type ShownState = "unknown" | "idle" | "armed" | "measuring" | "writing" | "error";

export const STATE_WORDS: Record<ShownState, string> = {
  unknown: "–",
  idle: "Idle",
  armed: "Armed",
  measuring: "Measuring",
  writing: "Writing",
  error: "Error",
};

export function shownState(status: DetectorStatus | null): ShownState {
  if (status === null) return "unknown";
  if (status.state === "running") return status.draining ? "writing" : "measuring";
  // A newer service may have more states.
  return status.state in STATE_WORDS ? status.state : "unknown";
}

export function StateSign({ state }: { state: ShownState }): JSX.Element {
  switch (state) {
    case "armed":
      return (
        <Sign>
          <circle cx="7" cy="7" r="5.5" fill="none" stroke="currentColor" stroke-width="1.8" />
          <circle cx="7" cy="7" r="2.2" fill="currentColor" />
        </Sign>
      );
    case "measuring":
      return (
        <Sign>
          <path d="M3 1.5v11l9.5-5.5z" fill="currentColor" />
        </Sign>
      );
    case "writing":
      return (
        <Sign>
          <path d="M7 1v8M3.5 6 7 9.5 10.5 6M2 13h10" fill="none" stroke="currentColor" stroke-width="1.8" />
        </Sign>
      );
    case "error":
      return (
        <Sign>
          <rect x="1.5" y="1.5" width="11" height="11" fill="currentColor" />
        </Sign>
      );
    default:
      return (
        <Sign>
          <circle cx="7" cy="7" r="5.5" fill="none" stroke="currentColor" stroke-width="1.8" />
        </Sign>
      );
  }
}
