// Ends and labels of the axes of charts.

/** A little above the highest value; a chart of zeros has an axis, too. */
export function topOf(highest: number | null, least: number, most = Number.POSITIVE_INFINITY): number {
  return Math.min(most, Math.max(least, 1.1 * (highest ?? 0)));
}

/** A label that says the same as the one before says nothing. */
export function withoutRepeats(labels: readonly string[]): string[] {
  return labels.map((label, place) => (label === labels[place - 1] ? "" : label));
}
