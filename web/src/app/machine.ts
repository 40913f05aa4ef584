// What the machine does, asked only as often as somebody on the page wants to know it.

import { effect, type ReadonlySignal, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Machine, problemOf } from "../api/client";

interface MachineOptions {
  ask: (detector: string) => Promise<Machine>;
  /** False while the page is not to be seen, or there is no contact. */
  isAsking: () => boolean;
  detector: ReadonlySignal<string | null>;
}

/** An older service does not know the question. */
const NOT_KNOWN = new Set(["not_found", "method"]);

export class MachineWatch {
  /** The newest answer; null before the first, and while it is not known. */
  readonly value = signal<Machine | null>(null);
  private readonly options: MachineOptions;
  private readonly wanted = new Map<symbol, number>();
  private timer: ReturnType<typeof setTimeout> | undefined;
  private isWaiting = false;
  private isUnknown = false;

  constructor(options: MachineOptions) {
    this.options = options;
    effect(() => {
      // What is known is of the detector that was shown before.
      options.detector.value;
      this.value.value = null;
      this.again(0);
    });
  }

  /** Asks at least this often until what is returned is called. */
  want(everyMs: number): () => void {
    const who = Symbol("who");
    this.wanted.set(who, everyMs);
    this.again(0);
    return () => {
      this.wanted.delete(who);
    };
  }

  private again(afterMs: number): void {
    clearTimeout(this.timer);
    if (this.isWaiting || this.isUnknown || this.wanted.size === 0) return;
    this.timer = setTimeout(() => void this.ask(), afterMs);
  }

  private async ask(): Promise<void> {
    const detector = this.options.detector.peek();
    if (detector !== null && this.options.isAsking()) {
      this.isWaiting = true;
      const answer = await this.options.ask(detector).catch((error: unknown) => {
        this.isUnknown = NOT_KNOWN.has(problemOf(error).code);
        return null;
      });
      this.isWaiting = false;
      if (detector === this.options.detector.peek()) this.value.value = answer;
    }
    this.again(Math.min(...this.wanted.values()));
  }
}

/** The newest answer, asked for this often while this part of the page is there. */
export function useMachine(watch: MachineWatch, everyMs: number): Machine | null {
  useEffect(() => watch.want(everyMs), [watch, everyMs]);
  return watch.value.value;
}
