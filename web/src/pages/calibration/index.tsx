// Pedestals: take them, and what is known of those that are in use.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type ApiProblem, problemOf } from "../../api/client";
import { whyNot } from "../../app/commands";
import { Check, ChoiceField, TextField } from "../../app/Field";
import { ProblemStrip } from "../../app/Strips";
import { type PageProps, type Services, shownStatus } from "../../app/services";
import { useLoaded } from "../../app/useLoaded";
import type { DetectorStatus } from "../../live/types";
import { CalibrationAlarms, UsedCalibration } from "./Known";
import { FIRST_MAP, type MapChoice, Maps } from "./Maps";
import { Measurements } from "./Measurements";
import { Modules } from "./Modules";
import { Progress } from "./Progress";
import "./calibration.css";
import { checkPedestal, EMPTY_PEDESTAL, type PedestalForm, STAGES } from "./pedestal";

/** The service looks whether the files have changed when it is asked. */
const RENEW_MS = 30_000;

/** The report, and the seconds since it came. */
function useReport({ connection, api }: Services) {
  const detector = connection.detector.value;
  const tick = useSignal(0);
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) tick.value += 1;
    }, RENEW_MS);
    return () => clearInterval(timer);
  }, [tick]);
  const measured = connection.events.value.filter(
    (event) => event.event === "pedestal" && event.detector === detector,
  ).length;
  const loaded = useLoaded(
    () => (detector === null ? null : api.calibration(detector)),
    [detector, measured, tick.value],
  );
  const came = useRef<{ report: unknown; at: number }>({ report: null, at: 0 });
  if (came.current.report !== loaded.value) came.current = { report: loaded.value, at: Date.now() };
  // What is of another detector is not shown.
  const value = loaded.value?.detector === detector ? loaded.value : null;
  return { loaded: { ...loaded, value }, laterS: (Date.now() - came.current.at) / 1000 };
}

export function CalibrationPage({ services }: PageProps): JSX.Element {
  const status = shownStatus(services.connection);
  const { loaded, laterS } = useReport(services);
  const choice = useSignal<MapChoice>(FIRST_MAP);
  const report = loaded.problem ? null : (loaded.value?.calibration ?? null);
  return (
    <div class="stack">
      <div class="columns">
        <PedestalCard services={services} status={status} />
        <div class="stack">
          <UsedCalibration loaded={loaded} laterS={laterS} />
          <CalibrationAlarms status={status} />
        </div>
      </div>
      {report && <Modules report={report} />}
      {report && <Maps services={services} report={report} choice={choice} />}
      <Measurements services={services} />
    </div>
  );
}

function PedestalCard({ services, status }: { services: Services; status: DetectorStatus | null }): JSX.Element {
  const form = useSignal<PedestalForm>(EMPTY_PEDESTAL);
  const problem = useSignal<ApiProblem | null>(null);
  const isSending = useSignal(false);
  const { request, wrong } = checkPedestal(form.value);
  const isWrong = Object.keys(wrong).length > 0;
  const why =
    whyNot("pedestal", services.connection.contact.value, status) ?? (isWrong ? "a field of the form is wrong" : null);
  const take = async (event: Event): Promise<void> => {
    event.preventDefault();
    if (status === null || why !== null || isSending.value) return;
    problem.value = null;
    isSending.value = true;
    try {
      await services.api.pedestal(status.detector, request);
    } catch (error) {
      problem.value = problemOf(error);
    } finally {
      isSending.value = false;
    }
  };
  return (
    <form class="card" onSubmit={take} aria-label="Take pedestals">
      <h1>Take pedestals</h1>
      <p class="soft">
        Close the shutter, set the exposure that you will measure with, and let the detector warm up. The next run uses
        the new pedestals.
      </p>
      <PedestalFields
        form={form.value}
        wrong={wrong}
        onChange={(fields) => {
          form.value = { ...form.value, ...fields };
        }}
      />
      <Progress status={status} />
      <div class="button-row">
        <button type="submit" class="button primary" disabled={why !== null || isSending.value}>
          Take pedestals
        </button>
        <span class="soft">
          {why ?? "the progress stands in the bar above; Stop or Cancel there end it, nothing is written then"}
        </span>
      </div>
      {problem.value && (
        <ProblemStrip
          problem={problem.value}
          onClose={() => {
            problem.value = null;
          }}
        />
      )}
    </form>
  );
}

interface FieldsProps {
  form: PedestalForm;
  wrong: Record<string, string>;
  onChange: (fields: Partial<PedestalForm>) => void;
}

function PedestalFields({ form, wrong, onChange }: FieldsProps): JSX.Element {
  return (
    <>
      <div class="fields">
        <ChoiceField
          label="Gain stages"
          value={form.stage}
          choices={STAGES}
          note={
            form.stage === "all" ? "needs [control] on_stage and on_trigger" : "set the gain of the detector yourself"
          }
          onInput={(stage) => onChange({ stage: stage as PedestalForm["stage"] })}
        />
        <TextField
          label="Frames of each stage"
          inputMode="numeric"
          value={form.frames}
          placeholder="1000"
          note="all storage cells together"
          wrong={wrong.frames}
          onInput={(frames) => onChange({ frames })}
        />
        <TextField
          label="Frames to skip"
          inputMode="numeric"
          value={form.skip}
          note="at the beginning of each stage"
          wrong={wrong.skip}
          onInput={(skip) => onChange({ skip })}
        />
        <TextField
          label="Calibration file"
          value={form.file}
          placeholder="that of [calibration]"
          note="below the data root, for example calibration/today"
          onInput={(file) => onChange({ file })}
        />
      </div>
      <Check
        label="Use the frames even if they look as if there was light"
        isOn={form.isForced}
        onInput={(isForced) => onChange({ isForced })}
      />
    </>
  );
}
