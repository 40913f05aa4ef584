// Spots and lattice of the image that is shown, and the hits of the run.

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { type Api, type HitRate, problemOf } from "../../api/client";
import type { FrameHeader } from "../../image/frame";
import type { Viewer } from "../../image/viewer";
import { Row } from "./InfoTab";
import { listOf, numberOf, percentOf, shortNumber, sumOf } from "./numbers";
import { Plot } from "./Plot";

type Answer = { rate: HitRate } | { problem: string } | null;

const ASK_MS = 2000;

async function ask(api: Api, detector: string, answer: Signal<Answer>): Promise<void> {
  try {
    answer.value = { rate: await api.hitRate(detector) };
  } catch (error) {
    answer.value = { problem: problemOf(error).detail };
  }
}

function useHitRate(api: Api, viewer: Viewer): Answer {
  const answer = useSignal<Answer>(null);
  const detector = viewer.connection.detector.value;
  const isConnected = viewer.connection.contact.value.kind === "connected";
  useEffect(() => {
    if (detector === null || !isConnected) return;
    answer.value = null;
    const again = () => {
      if (!document.hidden) void ask(api, detector, answer);
    };
    again();
    const timer = setInterval(again, ASK_MS);
    return () => clearInterval(timer);
  }, [api, detector, isConnected, answer]);
  return answer.value;
}

function yesOrNo(value: number | null): string {
  return value === null ? "–" : value === 1 ? "yes" : "no";
}

function OfImage({ header }: { header: FrameHeader }): JSX.Element {
  const { results } = header;
  const lengths = listOf(results, "cell_length_angstrom");
  const angles = listOf(results, "cell_angle_deg");
  const isIndexed = numberOf(results, "is_indexed");
  return (
    <table class="table">
      <caption>Image {header.image}</caption>
      <tbody>
        <Row name="Spots">{shortNumber(numberOf(results, "spots"))}</Row>
        <Row name="On rings of ice">{shortNumber(numberOf(results, "spots_on_ice"))}</Row>
        <Row name="Resolution, Å">{shortNumber(numberOf(results, "resolution_angstrom"))}</Row>
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
  const values = rate.analysed.map((all, bin) => (all > 0 ? (100 * (rate.hits[bin] ?? 0)) / all : null));
  return (
    <>
      <table class="table">
        <caption>Run {rate.series}</caption>
        <tbody>
          <Row name="Analysed images">{analysed}</Row>
          <Row name="Hits">{hits}</Row>
          <Row name="Hit rate">{percentOf(hits, analysed)}</Row>
          {rate.indexed.length > 0 && <Row name="Indexed">{indexed}</Row>}
          {rate.indexed.length > 0 && <Row name="Indexed of the hits">{percentOf(indexed, hits)}</Row>}
        </tbody>
      </table>
      <Plot
        axisName="seconds since the first image"
        axis={values.map((_, bin) => bin * rate.bin_s)}
        line={{ name: "hit rate, %", values }}
        summary={`Hit rate over time in steps of ${rate.bin_s} s; ${percentOf(hits, analysed)} of all`}
        height={160}
      />
    </>
  );
}

export function SpotsTab({ api, viewer }: { api: Api; viewer: Viewer }): JSX.Element {
  const answer = useHitRate(api, viewer);
  const header = viewer.header.value;
  return (
    <>
      {header ? <OfImage header={header} /> : <p class="soft">No image yet.</p>}
      {answer && "rate" in answer && <OfRun rate={answer.rate} />}
      {answer && "problem" in answer && <p class="soft">The hit rate is not known: {answer.problem}</p>}
    </>
  );
}
