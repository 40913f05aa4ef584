// The last numbers of a plot, for who does not see it or wants them exactly.

import type { JSX } from "preact";
import { shortNumber } from "./numbers";
import type { PlotProps } from "./PlotCanvas";

const TABLE_ROWS = 100;

interface Column {
  name: string;
  of: (place: number) => string;
}

function columnsOf({ line, band, marks }: PlotProps): Column[] {
  const columns = [{ name: line.name, of: (place: number) => shortNumber(line.values[place]) }];
  if (band) {
    columns.push({ name: "lowest", of: (place) => shortNumber(band.lowest[place]) });
    columns.push({ name: "highest", of: (place) => shortNumber(band.highest[place]) });
  }
  if (marks) columns.push({ name: marks.name, of: (place) => shortNumber(marks.counts[place]) });
  return columns;
}

export function PlotTable(props: PlotProps): JSX.Element {
  const { axisName, axis, onPick } = props;
  const first = Math.max(0, axis.length - TABLE_ROWS);
  const places = Array.from({ length: axis.length - first }, (_, n) => axis.length - 1 - n);
  const columns = columnsOf(props);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section class="table-frame plot-table" aria-label={`The last ${places.length} numbers`} tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            <th scope="col">{axisName}</th>
            {columns.map(({ name }) => (
              <th scope="col" key={name}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {places.map((place) => (
            <tr key={place}>
              <td>
                {onPick ? (
                  <button type="button" class="button" onClick={() => onPick(place)}>
                    {shortNumber(axis[place])}
                  </button>
                ) : (
                  shortNumber(axis[place])
                )}
              </td>
              {columns.map(({ name, of }) => (
                <td key={name}>{of(place)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
