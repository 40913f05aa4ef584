// A plot with what it says in words, or its numbers as a table.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { PlotCanvas, type PlotProps } from "./PlotCanvas";
import { PlotTable } from "./PlotTable";
import { TableButton } from "./TableButton";

export function Plot(props: PlotProps): JSX.Element {
  const isTable = useSignal(false);
  return (
    <figure class="plot">
      <figcaption class="plot-caption">
        <span>{props.summary}</span>
        <TableButton isTable={isTable} />
      </figcaption>
      {isTable.value ? <PlotTable {...props} /> : <PlotCanvas {...props} />}
    </figure>
  );
}
