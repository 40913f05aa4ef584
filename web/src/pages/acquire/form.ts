// From what was typed to a request, or to what is wrong with it.

import type { ArmRequest, Metadata } from "../../api/client";
import { type Form, METADATA_FIELDS, type MetadataField } from "./fields";

export interface Checked {
  request: ArmRequest;
  /** What is wrong, by field. */
  wrong: Record<string, string>;
}

const IMAGES_MAX = 1_099_511_627_776;
const NAME_BYTES_MAX = 200;

export function checkForm(form: Form): Checked {
  const wrong: Record<string, string> = {};
  const request: ArmRequest = {};
  if (form.isUntilStopped) request.images = 0;
  else if (form.images.trim() !== "") {
    const images = wholeNumber(form.images);
    if (images === null) wrong.images = "a whole number is needed, for example 1000";
    else if (images < 1 || images > IMAGES_MAX) wrong.images = `1 to ${IMAGES_MAX} images are possible`;
    else request.images = images;
  }
  const prefix = form.prefix.trim();
  if (prefix !== "") {
    const why = whyNotPrefix(prefix);
    if (why === null) request.prefix = prefix;
    else wrong.prefix = why;
  }
  if (form.write !== "configured") request.write = form.write === "yes";
  const metadata = checkMetadata(form, wrong);
  if (Object.keys(metadata).length > 0) request.metadata = metadata;
  return { request, wrong };
}

function checkMetadata(form: Form, wrong: Record<string, string>): Metadata {
  const metadata: Metadata = {};
  for (const field of METADATA_FIELDS) {
    const text = form.metadata[field.name]?.trim() ?? "";
    if (text === "") continue;
    if (field.kind === "text") metadata[field.name] = text;
    else {
      const value = readNumber(text);
      const why = whyNotNumber(value, field);
      if (why !== null) wrong[field.name] = why;
      else if (value !== null) metadata[field.name] = value;
    }
  }
  return metadata;
}

function whyNotNumber(value: number | null, { min, max }: MetadataField): string | null {
  if (value === null) return "a number is needed, with a point for decimals";
  const [least, most] = [min ?? -Infinity, max ?? Infinity];
  return value < least || value > most ? `${least} to ${most} is possible` : null;
}

/** People also write spaces between groups of digits. */
function wholeNumber(text: string): number | null {
  const digits = text.replace(/[\s\u202f_]/g, "");
  return /^\d{1,15}$/.test(digits) ? Number(digits) : null;
}

function readNumber(text: string): number | null {
  return /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : null;
}

/** The rules of the service for names of files (crates/acquire/src/paths.rs); it looks at them again. */
export function whyNotPrefix(prefix: string): string | null {
  const isAbsolute = prefix.startsWith("/");
  for (const part of (isAbsolute ? prefix.slice(1) : prefix).split("/")) {
    if (part === "") return "a part of the name is empty";
    if (part === "." || part === "..") return "a name cannot have a part . or ..";
    if (part.startsWith(".") && !isAbsolute) return "a part of the name begins with a point";
    if (new TextEncoder().encode(part).length > NAME_BYTES_MAX) return "a part of the name is longer than 200 bytes";
  }
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
  if (/[\u0000-\u001f\u007f]/.test(prefix)) return "the name has a control character";
  const file = prefix.split("/").at(-1) ?? "";
  return file.replace(/\.h5$/, "").replace(/_master$/, "") === "" ? "the name is empty without its suffix" : null;
}
