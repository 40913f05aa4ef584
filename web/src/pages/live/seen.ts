// Results of the images that this page has seen, for the plot against the number of the image.

import type { FrameHeader } from "../../image/frame";

export const SEEN_MAX = 5000;
/** Images over which the rate of hits is taken. */
const RATE_IMAGES = 50;

export const HIT_RATE = "hit rate";

type Line = (number | null)[];

/** The last images that were seen, in the order of their numbers. */
export class Seen {
  readonly images: number[] = [];
  private readonly lines = new Map<string, Line>();
  private from = "";

  /** True if that image was not seen yet. */
  add(header: FrameHeader): boolean {
    const from = `${header.detector} ${header.run}`;
    if (from !== this.from) {
      this.from = from;
      this.images.length = 0;
      this.lines.clear();
    }
    const place = this.placeOf(header.image);
    if (this.images[place] === header.image) return false;
    this.insert(place, header);
    if (this.images.length > SEEN_MAX) this.dropOldest();
    return true;
  }

  /** What can be plotted. */
  names(): string[] {
    const names = [...this.lines.keys()];
    return this.lines.has("is_hit") ? [HIT_RATE, ...names] : names;
  }

  /** One number, or none, for each of the images. */
  line(name: string): Line {
    if (name === HIT_RATE) return this.hitRate();
    return this.lines.get(name) ?? this.images.map(() => null);
  }

  private placeOf(image: number): number {
    let [begin, end] = [0, this.images.length];
    // Images come in order as a rule, so look at the end first.
    if (end > 0 && (this.images[end - 1] as number) < image) return end;
    while (begin < end) {
      const middle = (begin + end) >> 1;
      if ((this.images[middle] as number) < image) begin = middle + 1;
      else end = middle;
    }
    return begin;
  }

  private insert(place: number, header: FrameHeader): void {
    const results = header.results ?? {};
    for (const [name, value] of Object.entries(results)) {
      if (!Array.isArray(value) && !this.lines.has(name))
        this.lines.set(
          name,
          this.images.map(() => null),
        );
    }
    this.images.splice(place, 0, header.image);
    for (const [name, line] of this.lines) {
      const value = results[name];
      line.splice(place, 0, typeof value === "number" && Number.isFinite(value) ? value : null);
    }
  }

  private dropOldest(): void {
    this.images.shift();
    for (const line of this.lines.values()) line.shift();
  }

  private hitRate(): Line {
    const hits = this.lines.get("is_hit") ?? [];
    const analysed = this.lines.get("is_analysed");
    const last: number[] = [];
    return hits.map((hit, n) => {
      if (hit === null || analysed?.[n] === 0) return null;
      last.push(hit);
      if (last.length > RATE_IMAGES) last.shift();
      return (100 * last.reduce((sum, one) => sum + one, 0)) / last.length;
    });
  }
}
