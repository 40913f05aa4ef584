// Exchanges a plot and its numbers.

import type { Signal } from "@preact/signals";
import type { JSX } from "preact";

export function TableButton({ isTable }: { isTable: Signal<boolean> }): JSX.Element {
  return (
    <button
      type="button"
      class="button"
      aria-pressed={isTable.value}
      onClick={() => {
        isTable.value = !isTable.value;
      }}
    >
      Table
    </button>
  );
}
