// The lines below the image: what is under the pointer, and what the image is.

import type { JSX } from "preact";
import { useEffect, useMemo } from "preact/hooks";
import type { Api } from "../api/client";
import { fileName } from "../app/format";
import { compared } from "./compare";
import type { FrameHeader } from "./frame";
import type { Point } from "./geometry";
import { moduleAt, modulesOf } from "./modules";
import { type Reading, readingAt } from "./reading";
import { kindText, type PixelPlace, Reasons } from "./reason";
import { imagesText } from "./stack";
import { toImage } from "./view";
import type { Viewer } from "./viewer";

interface ReadoutProps {
  api: Api;
  viewer: Viewer;
}

/** The pixel of which the service can say why it has no number. Missing ones say it by their module. */
function pixelOf({ kind, column, row }: Reading, header: FrameHeader): PixelPlace | null {
  if (kind !== "masked" && kind !== "invalid") return null;
  const { detector, run, bin } = header;
  return bin === 1 && run !== null && !header.file ? { detector, run, column, row } : null;
}

function useReasons(api: Api, place: PixelPlace | null): string[] | null {
  const reasons = useMemo(() => new Reasons((pixel) => api.reasons(pixel)), [api]);
  const key = place && JSON.stringify(place);
  useEffect(() => {
    reasons.look(key === null ? null : (JSON.parse(key) as PixelPlace));
  }, [reasons, key]);
  useEffect(() => () => reasons.look(null), [reasons]);
  return reasons.shown.value;
}

function Scattered({ reading }: { reading: Reading }): JSX.Element {
  const { scattering } = reading;
  const digits = (number: number | null | undefined, count: number) => (number == null ? "–" : number.toFixed(count));
  return (
    <>
      <span>d {digits(scattering?.dAngstrom, 3)} Å</span>
      <span>q {digits(scattering?.qPerAngstrom, 4)} 1/Å</span>
      <span>2θ {digits(scattering?.twoThetaDeg, 3)}°</span>
    </>
  );
}

function Difference({ viewer, point }: { viewer: Viewer; point: Point }): JSX.Element | null {
  const [shown, reference] = [viewer.frame, viewer.reference.value?.frame];
  if (!shown || !reference) return null;
  const { reference: before, difference } = compared(shown, reference, point);
  return (
    <span class="readout-reference">
      reference {before}, difference {difference}
    </span>
  );
}

function Numbers({ api, viewer, point }: ReadoutProps & { point: Point | null }): JSX.Element {
  const header = viewer.header.value;
  // What was under the pointer stays known to the hook when the pointer leaves.
  const reading = point && viewer.frame ? readingAt(viewer.frame, point) : null;
  const reasons = useReasons(api, reading && header ? pixelOf(reading, header) : null);
  if (!reading || !header || !point) {
    return <span class="soft">Move the pointer over the image to read values.</span>;
  }
  const modules = modulesOf(viewer.modules.value, header);
  const module = moduleAt(modules, reading.column, reading.row);
  const { kind, before, value } = reading;
  const hasReason = kind !== null && kind !== "number";
  // Only modules that send packets can lose them.
  const sent = viewer.connection.detectors.value?.find(({ detector }) => detector === header.detector)?.kind;
  const words = hasReason ? before + kindText(kind, reasons, sent === "udp" ? module : null) : value;
  return (
    <>
      <span class="readout-place">
        x {reading.column} y {reading.row}
      </span>
      <strong class="readout-value">{words}</strong>
      <Difference viewer={viewer} point={point} />
      <Scattered reading={reading} />
      {module && modules.length > 1 && (
        <span class="readout-module">
          module {module.index}: {reading.column - module.column}, {reading.row - module.row}
        </span>
      )}
    </>
  );
}

function imageText(header: FrameHeader): string {
  if (header.label) return header.label;
  const from = header.file ? fileName(header.file) : `run ${header.run}`;
  return `${imagesText(header)} · ${from} · ${header.status}`;
}

export function Readout({ api, viewer }: ReadoutProps): JSX.Element {
  const header = viewer.header.value;
  // The reference may have come, or gone, without a new frame.
  void viewer.reference.value?.header.value;
  const pointer = viewer.pointer.value;
  const view = viewer.actualView();
  return (
    <>
      <div class="readout">
        <Numbers api={api} viewer={viewer} point={pointer && view ? toImage(view, pointer) : null} />
      </div>
      <p class="readout-image">{header ? imageText(header) : "–"}</p>
    </>
  );
}
