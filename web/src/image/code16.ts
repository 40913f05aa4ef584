// The 16 bits by which a frame says a value (docs/live.md). Larger numbers have larger codes.

/** `linear LOW HIGH`: equal steps between two values, for numbers that differ little from each other. */
export type Coding = "count" | "float" | LinearCoding;
export type LinearCoding = `linear ${number} ${number}`;
export type SpecialKind = "missing" | "masked" | "invalid" | "saturated";
/** A number, or why there is none. */
export type Value = { kind: "number"; value: number } | { kind: SpecialKind };

export const CODES = 65536;
export const CODE_MISSING = 0;
export const CODE_MASKED = 1;
export const CODE_INVALID = 2;
export const CODE_SATURATED = 65535;
/** Codes below are special. */
export const CODE_FIRST = 16;

const COUNT_OFFSET = 4112;
const COUNT_EXACT_CODE = 24576;
const COUNT_EXACT = COUNT_EXACT_CODE - COUNT_OFFSET;
const CODES_PER_DOUBLING = 2048;

export function isSpecial(code: number): boolean {
  return code < CODE_FIRST || code === CODE_SATURATED;
}

/** Why there is no number; codes that nobody uses yet count as invalid. */
export function specialKind(code: number): SpecialKind {
  if (code === CODE_SATURATED) return "saturated";
  if (code === CODE_MISSING) return "missing";
  return code === CODE_MASKED ? "masked" : "invalid";
}

export function countToCode(count: number): number {
  if (count <= COUNT_EXACT) return Math.max(CODE_FIRST, count + COUNT_OFFSET);
  const code = COUNT_EXACT_CODE + Math.round(CODES_PER_DOUBLING * Math.log2(count / COUNT_EXACT));
  return Math.min(code, CODE_SATURATED - 1);
}

function codeToCount(code: number): number {
  if (code <= COUNT_EXACT_CODE) return code - COUNT_OFFSET;
  return Math.round(COUNT_EXACT * 2 ** ((code - COUNT_EXACT_CODE) / CODES_PER_DOUBLING));
}

/** The code of a float, given its 32 bits. */
export function floatBitsToCode(bits: number): number {
  const upper = bits >>> 16;
  return upper & 0x8000 ? ~upper & 0xffff : upper | 0x8000;
}

const floatOf = new Float32Array(1);
const bitsOf = new Uint32Array(floatOf.buffer);

function codeToFloat(code: number): number {
  bitsOf[0] = (code & 0x8000 ? code & 0x7fff : ~code & 0xffff) << 16;
  return floatOf[0] as number;
}

export function floatToCode(value: number): number {
  floatOf[0] = value;
  return floatBitsToCode(bitsOf[0] as number);
}

const tables = new Map<Coding, Float64Array>();

/** Writes numbers of this range. */
export function linearCoding([low, high]: readonly [number, number]): LinearCoding {
  return `linear ${low} ${high > low ? high : low + Math.max(Math.abs(low) * 1e-6, 1e-9)}`;
}

/** The range of a linear coding; null for others. */
export function rangeOfCoding(coding: Coding): [low: number, high: number] | null {
  const [kind, low, high] = coding.split(" ");
  return kind === "linear" ? [Number(low), Number(high)] : null;
}

const CODES_OF_RANGE = CODE_SATURATED - 1 - CODE_FIRST;

/** The code of a number; what lies outside of the range has that of its end. */
export function linearToCode(value: number, [low, high]: readonly [number, number]): number {
  const part = Math.min(1, Math.max(0, (value - low) / (high - low)));
  return CODE_FIRST + Math.round(part * CODES_OF_RANGE);
}

function decoderOf(coding: Coding): (code: number) => number {
  const range = rangeOfCoding(coding);
  if (range === null) return coding === "count" ? codeToCount : codeToFloat;
  const [low, high] = range;
  return (code) => low + ((code - CODE_FIRST) / CODES_OF_RANGE) * (high - low);
}

/** The number of each code; NaN for special ones. */
export function numbersOfCodes(coding: Coding): Float64Array {
  const known = tables.get(coding);
  if (known) return known;
  const decode = decoderOf(coding);
  // Of the linear ones, there are as many as there are maps.
  if (tables.size > 8) tables.clear();
  const table = Float64Array.from({ length: CODES }, (_, code) => (isSpecial(code) ? Number.NaN : decode(code)));
  tables.set(coding, table);
  return table;
}

export function codeToValue(code: number, coding: Coding): Value {
  if (isSpecial(code)) return { kind: specialKind(code) };
  return { kind: "number", value: numbersOfCodes(coding)[code] as number };
}
