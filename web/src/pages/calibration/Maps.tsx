// Maps of the calibration where the pixels lie in the images, on the image canvas.

import type { Signal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type { CalibrationMapQuery, CalibrationReport } from "../../api/client";
import { Check, ChoiceField } from "../../app/Field";
import type { Services } from "../../app/services";
import { ContrastPanel } from "../../image/ContrastPanel";
import { ImageView } from "../../image/ImageView";
import { zoomBy } from "../../image/Toolbar";
import { toImage } from "../../image/view";
import { indexAt, type Viewer } from "../../image/viewer";
import { MapSource } from "./mapSource";
import { reasonsOf, stageName } from "./report";

export interface MapChoice {
  quantity: CalibrationMapQuery["quantity"];
  stage: CalibrationMapQuery["stage"];
  /** Null: the first one. */
  cell: number | null;
  isDifference: boolean;
}

export const FIRST_MAP: MapChoice = { quantity: "pedestal", stage: 0, cell: null, isDifference: false };

const QUANTITIES: readonly (readonly [MapChoice["quantity"], string])[] = [
  ["pedestal", "pedestal (ADU)"],
  ["noise", "noise (ADU)"],
  ["gain", "gain (ADU/keV)"],
  ["mask", "mask: reasons"],
];

interface MapsProps {
  services: Services;
  report: CalibrationReport;
  choice: Signal<MapChoice>;
}

export function Maps({ services, report, choice }: MapsProps): JSX.Element {
  const { connection, api } = services;
  const source = useMemo(() => new MapSource(connection, api), [connection, api]);
  const { quantity, stage, cell, isDifference } = choice.value;
  const hasPrevious = Boolean(report.previous && !report.previous.problem);
  const minusPrevious = isDifference && hasPrevious;
  const version = `${report.hash} ${report.created} ${report.taken} ${report.previous?.taken}`;
  useEffect(() => {
    const ofCell = cell === null ? {} : { cell };
    source.show({ quantity, stage, ...ofCell, minus_previous: minusPrevious }, version);
  }, [source, quantity, stage, cell, minusPrevious, version, connection.detector.value]);
  return (
    <section class="card" aria-label="Maps">
      <h2>Maps</h2>
      <MapChoices report={report} choice={choice} hasPrevious={hasPrevious} />
      <div class="calibration-map">
        <Views viewer={source.viewer} />
        <ImageView api={api} viewer={source.viewer} />
        {quantity === "mask" && <MaskReading viewer={source.viewer} report={report} isDifference={minusPrevious} />}
        <ContrastPanel viewer={source.viewer} />
      </div>
      <p class="soft">
        Masked pixels and gaps have the colour of masked pixels. A dot that stands for several pixels has the mean of
        their values, or of reasons the one with the highest bit; zoom in to see each pixel.
      </p>
    </section>
  );
}

interface ChoicesProps {
  report: CalibrationReport;
  choice: Signal<MapChoice>;
  hasPrevious: boolean;
}

function MapChoices({ report, choice, hasPrevious }: ChoicesProps): JSX.Element {
  const set = (fields: Partial<MapChoice>): void => {
    choice.value = { ...choice.value, ...fields };
  };
  const { quantity, stage, cell, isDifference } = choice.value;
  return (
    <>
      <div class="fields">
        <ChoiceField
          label="Quantity"
          value={quantity}
          choices={QUANTITIES}
          onInput={(chosen) => set({ quantity: chosen as MapChoice["quantity"] })}
        />
        <ChoiceField
          label="Gain stage"
          value={String(stage)}
          choices={report.stages.map((name, index) => [String(index), stageName(name)] as const)}
          onInput={(chosen) => set({ stage: Number(chosen) as MapChoice["stage"] })}
        />
        {report.cells.length > 0 && (
          <ChoiceField
            label="Storage cell"
            value={String(cell ?? report.cells[0])}
            choices={report.cells.map((one) => [String(one), String(one)] as const)}
            onInput={(chosen) => set({ cell: Number(chosen) })}
          />
        )}
      </div>
      {hasPrevious ? (
        <Check
          label="Difference to the previous calibration"
          isOn={isDifference}
          onInput={(isOn) => set({ isDifference: isOn })}
        />
      ) : (
        <p class="soft">
          {report.previous?.problem
            ? `Nothing can be compared with the previous calibration: ${report.previous.problem.detail}`
            : "A difference can be shown when there is a previous calibration: take pedestals once more."}
        </p>
      )}
    </>
  );
}

function Views({ viewer }: { viewer: Viewer }): JSX.Element {
  const isOff = viewer.header.value === null;
  const buttons = [
    ["−", "Zoom out (wheel)", () => zoomBy(viewer, 1 / 1.5)],
    ["+", "Zoom in (wheel)", () => zoomBy(viewer, 1.5)],
    ["Fit", "All of the map (double click)", () => viewer.fit()],
    ["1:1", "One pixel for each dot of the screen", () => viewer.oneToOne()],
  ] as const;
  return (
    <fieldset class="toolbar-group" aria-label="Which part of the map">
      {buttons.map(([text, title, press]) => (
        <button key={text} type="button" class="button" title={title} disabled={isOff} onClick={press}>
          {text}
        </button>
      ))}
    </fieldset>
  );
}

interface ReadingProps {
  viewer: Viewer;
  report: CalibrationReport;
  isDifference: boolean;
}

const CHANGES = ["as before", "no longer masked", "newly masked"];

/** Why the pixel under the pointer is masked, in words. */
function MaskReading({ viewer, report, isDifference }: ReadingProps): JSX.Element {
  const pointer = viewer.pointer.value;
  const view = viewer.actualView();
  void viewer.header.value;
  const index = pointer && view && viewer.frame ? indexAt(viewer.frame, toImage(view, pointer)) : null;
  const value = index === null ? null : (viewer.frame?.value(index) ?? null);
  let words = "Move the pointer over the map to read why a pixel is masked.";
  if (value?.kind === "number") {
    words = isDifference ? (CHANGES[value.value] ?? "") : reasonsOf(value.value, report.reasons);
  } else if (value) {
    words = "no pixel of a module";
  }
  return <p class="mask-reading">{words}</p>;
}
