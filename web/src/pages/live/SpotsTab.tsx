// Spots and lattice of the image that is shown, and the hits of the run.

import type { JSX } from "preact";
import type { HitRate } from "../../api/client";
import { count } from "../../app/format";
import type { Services } from "../../app/services";
import type { FrameHeader } from "../../image/frame";
import type { Viewer } from "../../image/viewer";
import { hitRatePoints } from "./history";
import { Row } from "./InfoTab";
import { listOf, numberOf, percentOf, shortNumber, sumOf } from "./numbers";
import { Plot } from "./Plot";
import { resultText } from "./resultWords";
import { useHitRate } from "./useResults";

function yesOrNo(value: number | null): string {
  return value === null ? "–" : value === 1 ? "yes" : "no";
}

function OfImage({ header }: { header: FrameHeader }): JSX.Element {
  const { results, no_spots } = header;
  if (no_spots) {
    return (
      <p class="no-spots">
        Image {header.image}: it is not known which spots it has: {no_spots}.
      </p>
    );
  }
  const lengths = listOf(results, "cell_length_angstrom");
  const angles = listOf(results, "cell_angle_deg");
  const isIndexed = numberOf(results, "is_indexed");
  return (
    <table class="table">
      <caption>Image {header.image}</caption>
      <tbody>
        <Row name="Spots">{shortNumber(numberOf(results, "spots"))}</Row>
        <Row name="On rings of ice">{shortNumber(numberOf(results, "spots_on_ice"))}</Row>
        <Row name="Resolution">{resultText("resolution_angstrom", numberOf(results, "resolution_angstrom"))}</Row>
        <Row name="Background">{shortNumber(numberOf(results, "background"))}</Row>
        <Row name="Hit">{yesOrNo(numberOf(results, "is_hit"))}</Row>
        <Row name="Indexed">{yesOrNo(isIndexed)}</Row>
        {isIndexed === 1 && <Row name="Cell, Å">{lengths?.map(shortNumber).join(" ") ?? "–"}</Row>}
        {isIndexed === 1 && <Row name="Cell, degrees">{angles?.map(shortNumber).join(" ") ?? "–"}</Row>}
      </tbody>
    </table>
  );
}

function OfRun({ rate }: { rate: HitRate }): JSX.Element {
  const [analysed, hits, indexed] = [sumOf(rate.analysed), sumOf(rate.hits), sumOf(rate.indexed)];
  if (rate.analysed.length === 0) {
    return <p class="soft">The run has no analysed images. [analysis] in the configuration switches analysis on.</p>;
  }
  const { axis, mean } = hitRatePoints(rate);
  return (
    <>
      <table class="table">
        <caption>Run {rate.series}</caption>
        <tbody>
          <Row name="Analysed images">{count(analysed)}</Row>
          <Row name="Hits">{count(hits)}</Row>
          <Row name="Hit rate">{percentOf(hits, analysed)}</Row>
          {rate.indexed.length > 0 && <Row name="Indexed">{indexed}</Row>}
          {rate.indexed.length > 0 && <Row name="Indexed of the hits">{percentOf(indexed, hits)}</Row>}
        </tbody>
      </table>
      <Plot
        most={100}
        axisName="seconds since the first image"
        axis={axis}
        line={{ name: "hit rate, %", values: mean }}
        summary={`Hit rate over time in steps of ${rate.bin_s} s; ${percentOf(hits, analysed)} of all`}
        height={160}
      />
    </>
  );
}

/** Of the newest run, so only beside images of runs. */
function HitsOfRun({ services }: { services: Services }): JSX.Element | null {
  const { answer, problem } = useHitRate(services);
  if (answer) return <OfRun rate={answer} />;
  return problem === null ? null : <p class="soft">The hit rate is not known: {problem}</p>;
}

export function SpotsTab({ services, viewer }: { services: Services; viewer: Viewer }): JSX.Element {
  const header = viewer.header.value;
  return (
    <>
      {header ? <OfImage header={header} /> : <p class="soft">No image yet.</p>}
      {viewer.file.value === null && <HitsOfRun services={services} />}
    </>
  );
}
