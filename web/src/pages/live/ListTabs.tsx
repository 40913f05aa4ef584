// The profile and the regions of the image that is shown.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { Services } from "../../app/services";
import type { Viewer } from "../../image/viewer";
import { iceInBins, namesOfRegions, profileAxis } from "./lists";
import { listOf, shortNumber } from "./numbers";
import { Plot } from "./Plot";
import { resultText } from "./resultWords";
import { useListFacts } from "./useResults";

interface TabProps {
  services: Services;
  viewer: Viewer;
}

/** "q, 1/Å" and a number are "q = 0.37 1/Å". */
function at(name: string, value: string): string {
  const [quantity, unit] = name.split(", ");
  return unit === undefined ? `${name} ${value}` : `${quantity} = ${value} ${unit}`;
}

export function ProfileTab({ services, viewer }: TabProps): JSX.Element {
  const isLog = useSignal(true);
  const facts = useListFacts(services, viewer);
  const header = viewer.header.value;
  const profile = header && listOf(header.results, "profile_intensity");
  if (!header || !profile) {
    return <p class="soft">No profile. [azimuthal] in the recipe of the analysis makes one of each image.</p>;
  }
  const known = profile.filter((value) => value !== null);
  const highest = known.reduce((most, value) => Math.max(most, value), Number.NEGATIVE_INFINITY);
  const { axis, name } = profileAxis(facts, profile.length);
  const ice = iceInBins(facts, profile.length, header.geometry?.wavelength_angstrom ?? null);
  const summary =
    known.length === 0
      ? `Profile of image ${header.image}: no bin has a value`
      : `Profile of image ${header.image}: ${profile.length} bins, highest ${shortNumber(highest)} at ${at(name, shortNumber(axis[profile.indexOf(highest)]))}`;
  return (
    <>
      <label class="check">
        <input
          type="checkbox"
          checked={isLog.value}
          onChange={(event) => {
            isLog.value = event.currentTarget.checked;
          }}
        />
        Logarithmic
      </label>
      <Plot
        axisName={name}
        axis={axis}
        isContinuous={name !== "bin"}
        marks={ice && { name: "rings of ice", counts: ice }}
        line={{ name: "mean intensity of a pixel", values: profile }}
        summary={ice ? `${summary}; ▲ rings of ice` : summary}
        height={280}
        isLog={isLog.value}
      />
    </>
  );
}

const COLUMNS = [
  ["region_pixels", "Pixels"],
  ["region_sum", "Sum"],
  ["region_max", "Highest"],
  ["region_x_px", "x, px"],
  ["region_y_px", "y, px"],
] as const;

const HELP: Record<string, string> = {
  region_x_px: "column of the centre of what the region has",
  region_y_px: "row of the centre of what the region has",
};

export function RegionsTab({ services, viewer }: TabProps): JSX.Element {
  const facts = useListFacts(services, viewer);
  const results = viewer.header.value?.results ?? null;
  const pixels = listOf(results, "region_pixels");
  if (!pixels)
    return <p class="soft">No regions. Draw them on the image, or define them as [[region]] in the recipe.</p>;
  const names = namesOfRegions(facts, pixels.length);
  const lists = COLUMNS.map(([name]) => listOf(results, name));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <section class="table-frame" aria-label="Regions" tabIndex={0}>
      <table class="table">
        <caption>Regions</caption>
        <thead>
          <tr>
            <th scope="col">Region</th>
            {COLUMNS.map(([name, text]) => (
              <th scope="col" class="number" key={name} title={HELP[name] ?? ""}>
                {text}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {pixels.map((_, region) => (
            <tr key={region}>
              <th scope="row">{names[region]}</th>
              {lists.map((list, column) => (
                <td class="number" key={COLUMNS[column]?.[0]}>
                  {resultText("", list?.[region] ?? null)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
