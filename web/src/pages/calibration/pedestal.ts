// What was typed for a measurement of pedestals, and what events say of one.

import type { PedestalRequest, ServiceEvent, StageChoice } from "../../api/client";

export interface PedestalForm {
  stage: StageChoice;
  frames: string;
  skip: string;
  file: string;
  isForced: boolean;
}

export const EMPTY_PEDESTAL: PedestalForm = { stage: "all", frames: "", skip: "", file: "", isForced: false };

export const STAGES: readonly (readonly [StageChoice, string])[] = [
  ["all", "G0, G1, G2 in turn"],
  ["g0", "G0"],
  ["g1", "G1"],
  ["g2", "G2"],
  ["hg0", "HG0 (high gain)"],
  ["auto", "as the frames say"],
];

const FRAMES_MAX = 1_000_000;

export function checkPedestal(form: PedestalForm): { request: PedestalRequest; wrong: Record<string, string> } {
  const request: PedestalRequest = { stage: form.stage };
  const wrong: Record<string, string> = {};
  for (const [name, least] of [
    ["frames", 1],
    ["skip", 0],
  ] as const) {
    const text = form[name].trim();
    if (text === "") continue;
    const value = /^\d{1,7}$/.test(text) ? Number(text) : -1;
    if (value < least || value > FRAMES_MAX) wrong[name] = `a whole number, ${least} to ${FRAMES_MAX}`;
    else request[name] = value;
  }
  if (form.file.trim() !== "") request.file = form.file.trim();
  if (form.isForced) request.force = true;
  return { request, wrong };
}

/** One line of the table of a measurement. */
export interface PedestalRow {
  module: number;
  cell: number;
  stage: string;
  frames: number | null;
  pedestalAdu: number | null;
  rmsAdu: number | null;
  maskedPixels: number | null;
  isGood: boolean;
  verdict: string;
}

export interface Measurement {
  id: number;
  time: string;
  message: string;
  severity: ServiceEvent["severity"];
  hint: string | null;
  rows: PedestalRow[];
}

type Fields = Record<string, unknown>;
const fieldsOf = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const numberOf = (value: unknown): number | null => (typeof value === "number" ? value : null);
const textOf = (value: unknown): string | null => (typeof value === "string" ? value : null);

export function measurement({ id, time, message, severity, data }: ServiceEvent): Measurement {
  const pedestal = fieldsOf(fieldsOf(data).pedestal);
  const rows = Array.isArray(pedestal.rows) ? pedestal.rows : [];
  return { id, time, message, severity, hint: textOf(pedestal.fix), rows: rows.map(row) };
}

function row(value: unknown): PedestalRow {
  const fields = fieldsOf(value);
  return {
    module: numberOf(fields.module) ?? 0,
    cell: numberOf(fields.cell) ?? 0,
    stage: (textOf(fields.stage) ?? "").toUpperCase(),
    frames: numberOf(fields.frames),
    pedestalAdu: numberOf(fields.median_pedestal_adu),
    rmsAdu: numberOf(fields.median_rms_adu),
    maskedPixels: numberOf(fields.masked_pixels),
    isGood: fields.good === true,
    verdict: textOf(fields.verdict) ?? "",
  };
}

/** Events of both lists once, oldest first; after a restart of the service numbers begin again. */
export function mergeEvents(older: ServiceEvent[], newer: ServiceEvent[]): ServiceEvent[] {
  const known = new Map([...older, ...newer].map((event) => [`${event.time} ${event.id}`, event]));
  return [...known.values()].sort((a, b) => a.time.localeCompare(b.time) || a.id - b.id);
}
