// Forms that are kept in this browser under a name.

import { EMPTY_FORM, type Form, METADATA_FIELDS, type WriteChoice } from "./fields";

export type Presets = Record<string, Form>;

export interface Store {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

const KEY = "konkordia.presets";

export function loadPresets(store: Store): Presets {
  try {
    const kept: unknown = JSON.parse(store.getItem(KEY) ?? "{}");
    if (typeof kept !== "object" || kept === null) return {};
    return Object.fromEntries(Object.entries(kept).map(([name, form]) => [name, readForm(form)]));
  } catch {
    return {};
  }
}

export function savePresets(store: Store, presets: Presets): void {
  store.setItem(KEY, JSON.stringify(presets));
}

/** Whatever an older page kept becomes a whole form. */
export function readForm(kept: unknown): Form {
  if (typeof kept !== "object" || kept === null) return EMPTY_FORM;
  const fields = kept as Record<string, unknown>;
  const text = (value: unknown): string => (typeof value === "string" ? value : "");
  const facts = (fields.metadata ?? {}) as Record<string, unknown>;
  const metadata = METADATA_FIELDS.map(({ name }) => [name, text(facts[name])] as const);
  return {
    images: text(fields.images),
    isUntilStopped: fields.isUntilStopped === true,
    prefix: text(fields.prefix),
    write: readWrite(fields.write),
    metadata: Object.fromEntries(metadata.filter(([, value]) => value !== "")),
  };
}

const readWrite = (value: unknown): WriteChoice => (value === "yes" || value === "no" ? value : "configured");
