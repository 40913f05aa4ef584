// Steps that can be undone, and done again.

export const STEPS_MAX = 100;

export interface History<T> {
  readonly past: readonly T[];
  readonly now: T;
  readonly future: readonly T[];
  /** Changes one after the other with the same kind are one step: the keys that move a shape, the digits of a number. */
  readonly kind: string | null;
}

export const begun = <T>(now: T): History<T> => ({ past: [], now, future: [], kind: null });

export function changed<T>(history: History<T>, now: T, kind: string | null = null): History<T> {
  if (kind !== null && kind === history.kind) return { ...history, now, future: [] };
  return { past: [...history.past, history.now].slice(-STEPS_MAX), now, future: [], kind };
}

export function undone<T>(history: History<T>): History<T> {
  const before = history.past.at(-1);
  if (before === undefined) return history;
  return { past: history.past.slice(0, -1), now: before, future: [history.now, ...history.future], kind: null };
}

export function redone<T>(history: History<T>): History<T> {
  const [next, ...future] = history.future;
  if (next === undefined) return history;
  return { past: [...history.past, history.now].slice(-STEPS_MAX), now: next, future, kind: null };
}
