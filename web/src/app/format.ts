// Numbers, sizes and times as people read them. What is not known is an en dash, never a number.

export const UNKNOWN = "–";

type Maybe = number | null | undefined;

const isKnown = (value: Maybe): value is number => typeof value === "number" && Number.isFinite(value);

/** A whole number with narrow spaces between groups of three digits. */
export function count(value: Maybe): string {
  return isKnown(value) ? String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, "\u202f") : UNKNOWN;
}

/** Four significant digits are enough for rates. */
function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 1000) return count(value);
  return value.toFixed(size >= 100 ? 1 : size >= 10 ? 1 : 2);
}

/** From 100 kHz on, as packets have it, with three digits, so that it stays short. */
export function rateHz(value: Maybe): string {
  if (!isKnown(value)) return UNKNOWN;
  if (value >= 999_500) return `${(value / 1e6).toPrecision(3)} MHz`;
  if (value >= 99_950) return `${(value / 1e3).toFixed(0)} kHz`;
  return `${value === 0 ? "0" : digits(value)} Hz`;
}

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

export function bytes(value: Maybe): string {
  if (!isKnown(value)) return UNKNOWN;
  let size = value;
  let step = 0;
  while (size >= 999.5 && step < SIZES.length - 1) {
    size /= 1000;
    step += 1;
  }
  const shown = step === 0 ? count(size) : size >= 100 ? size.toFixed(0) : size.toFixed(1);
  return `${shown} ${SIZES[step]}`;
}

export function bytesPerSecond(value: Maybe): string {
  return isKnown(value) ? `${bytes(value)}/s` : UNKNOWN;
}

/** A part of one. */
export function percent(value: Maybe): string {
  if (!isKnown(value)) return UNKNOWN;
  const hundredths = 100 * value;
  return `${hundredths > 0 && hundredths < 10 ? hundredths.toFixed(1) : hundredths.toFixed(0)} %`;
}

export function microseconds(value: Maybe): string {
  if (!isKnown(value)) return UNKNOWN;
  if (value < 1000) return `${value.toFixed(0)} µs`;
  if (value < 1e6) return `${(value / 1e3).toPrecision(3)} ms`;
  return `${(value / 1e6).toPrecision(3)} s`;
}

const two = (value: number): string => String(value).padStart(2, "0");

/** 00:15, 1:02:03, 2 d 03:00. */
export function duration(seconds: Maybe): string {
  if (!isKnown(seconds) || seconds < 0) return UNKNOWN;
  const whole = Math.round(seconds);
  const [days, hours, minutes] = [
    Math.floor(whole / 86400),
    Math.floor(whole / 3600) % 24,
    Math.floor(whole / 60) % 60,
  ];
  if (days > 0) return `${days} d ${two(hours)}:${two(minutes)}`;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${two(minutes)}:${two(whole % 60)}`;
}

/** How long ago, or for how long, for a sentence: 12 s, 5 min, 3 h 20 min, 4 days. */
export function elapsed(seconds: Maybe): string {
  if (!isKnown(seconds) || seconds < 0) return UNKNOWN;
  const minutes = Math.floor(seconds / 60);
  if (seconds < 120) return `${Math.floor(seconds)} s`;
  if (minutes < 120) return `${minutes} min`;
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${count(Math.floor(minutes / 1440))} days`;
}

/** The time of day of this machine. */
export function clock(time: Date): string {
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

/** Date and time of this machine, for a time as the service writes it. */
export function dateAndTime(text: string | null | undefined): string {
  const time = new Date(text ?? "");
  if (Number.isNaN(time.getTime())) return text || UNKNOWN;
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${clock(time)}`;
}

export function fileName(path: string | null | undefined): string {
  return path ? (path.split("/").at(-1) ?? path) : UNKNOWN;
}
