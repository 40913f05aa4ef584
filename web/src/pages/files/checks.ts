// Checks of files: what was found, by file. A check reads every image, so it is run only when somebody asks for it.

import { type Signal, useSignal } from "@preact/signals";
import { type Api, type ApiProblem, type FileChecks, type FileEntry, problemOf } from "../../api/client";

export type CheckState =
  | { kind: "running" }
  | { kind: "done"; checks: FileChecks }
  | { kind: "failed"; problem: ApiProblem };

type ByFile = Readonly<Record<string, CheckState>>;

export interface Checks {
  states: Signal<ByFile>;
  run: (file: FileEntry) => void;
}

/** A run may write a file of the same name again. */
const keyOf = ({ run, master }: FileEntry): string => `${run} ${master}`;

export function checkOf(checks: Checks, file: FileEntry): CheckState | null {
  return checks.states.value[keyOf(file)] ?? null;
}

/** Only finished files can be checked. */
export const isFinished = ({ state, problem }: Pick<FileEntry, "state" | "problem">): boolean =>
  state !== "writing" && !problem;

export function useChecks(api: Api, detector: string | null): Checks {
  const states = useSignal<ByFile>({});
  const set = (file: FileEntry, state: CheckState): void => {
    states.value = { ...states.peek(), [keyOf(file)]: state };
  };
  const run = async (file: FileEntry): Promise<void> => {
    if (detector === null || states.peek()[keyOf(file)]?.kind === "running") return;
    set(file, { kind: "running" });
    try {
      const { checks } = await api.file(file.master, detector, { check: true });
      if (checks) set(file, { kind: "done", checks });
    } catch (error) {
      set(file, { kind: "failed", problem: problemOf(error) });
    }
  };
  return { states, run: (file) => void run(file) };
}

/** What a check found, in a word; a file can be valid although images of its run were lost. */
export function verdict({ is_valid, is_whole }: FileChecks): "valid" | "valid, not complete" | "not valid" {
  if (!is_valid) return "not valid";
  return is_whole ? "valid" : "valid, not complete";
}
