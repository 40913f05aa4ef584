// Ranges of plots.

type Maybe = number | null;

/** All numbers of the axis, and not more; one alone stands in the middle. uPlot gives null where there are none. */
export function wholeRange(_plot: unknown, first: Maybe, last: Maybe): [number, number] {
  if (first === null || last === null) return [0, 1];
  return first === last ? [first - 0.5, first + 0.5] : [first, last];
}

const STEPS = [1, 2, 5];

/** From 0 to a round number above the highest, but never above the most that there can be. */
export function yRangeUpTo(most: number): (plot: unknown, low: Maybe, high: Maybe) => [number, number] {
  return (_plot, _low, high) => {
    if (high === null || high <= 0) return [0, most];
    const power = 10 ** Math.floor(Math.log10(high));
    const round = STEPS.map((step) => step * power).find((top) => top >= high) ?? 10 * power;
    return [0, Math.min(most, round)];
  };
}
