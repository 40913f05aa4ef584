// The answer of the service about a run that is not armed, in the words of the form.

import type { DryRun } from "../../api/client";
import { bytes, count, duration, rateHz, UNKNOWN } from "../../app/format";

const OF_METADATA = "metadata.";

export interface Remarks {
  /** What is wrong, by field of the form. */
  fields: Record<string, string>;
  /** What is wrong and belongs to no field. */
  others: string[];
}

/** What is wrong, at its field if the form has it. */
export function remarksOf(answer: DryRun | null, fieldNames: ReadonlySet<string>): Remarks {
  const remarks: Remarks = { fields: {}, others: [] };
  for (const { field, detail, hint } of answer?.problems ?? []) {
    const name = field.startsWith(OF_METADATA) ? field.slice(OF_METADATA.length) : field;
    const words = hint === "" ? detail : `${detail}. ${capital(hint)}`;
    if (fieldNames.has(name)) remarks.fields[name] = words;
    else remarks.others.push(words);
  }
  return remarks;
}

/** A sentence begins with a capital, but a command to type does not. */
const capital = (text: string): string =>
  /^(mkdir|sudo|konkordia|rm|mv) /.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);

export interface Need {
  name: string;
  value: string;
  note?: string;
  /** There is not enough of it. */
  isBad?: boolean;
}

/** What the run needs and what there is. */
export function needsOf({ needs, problems }: DryRun): Need[] {
  const { images, duration_s, rate_hz, file_bytes, file_bytes_from, disk_free_bytes, memory_bytes, fits } = needs;
  const isWritten = file_bytes !== 0;
  // Of what would be refused the number is not known.
  const hasNone = typeof images !== "number" && problems.length === 0;
  return [
    { name: "images", value: count(images), ...(hasNone ? { note: "no number is planned" } : {}) },
    { name: "time", value: duration(duration_s), ...(rate_hz ? { note: `at ${rateHz(rate_hz)}` } : {}) },
    isWritten
      ? { name: "files", value: bytes(file_bytes), ...sizeNote(file_bytes_from) }
      : { name: "files", value: UNKNOWN, note: "none are written" },
    {
      name: "disk free",
      value: bytes(disk_free_bytes),
      ...(fits === false ? { isBad: true, note: "too little" } : fits && isWritten ? { note: "enough" } : {}),
    },
    { name: "memory", value: bytes(memory_bytes) },
  ];
}

function sizeNote(from: DryRun["needs"]["file_bytes_from"]): { note?: string } {
  if (from === "last_run") return { note: "as the last run" };
  return from === "uncompressed" ? { note: "at most" } : {};
}
