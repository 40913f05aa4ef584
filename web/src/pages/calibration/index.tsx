// Pedestals: take them, and what is known of those that are in use.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { type ApiProblem, problemOf } from "../../api/client";
import { whyNot } from "../../app/commands";
import { Check, ChoiceField, TextField } from "../../app/Field";
import { ProblemStrip } from "../../app/Strips";
import { type PageProps, type Services, shownStatus } from "../../app/services";
import type { DetectorStatus } from "../../live/types";
import { CalibrationAlarms, ConfiguredCalibration } from "./Known";
import { Measurements } from "./Measurements";
import { checkPedestal, EMPTY_PEDESTAL, type PedestalForm, STAGES } from "./pedestal";

export function CalibrationPage({ services }: PageProps): JSX.Element {
  const status = shownStatus(services.connection);
  return (
    <div class="stack">
      <div class="columns">
        <PedestalCard services={services} status={status} />
        <div class="stack">
          <ConfiguredCalibration services={services} />
          <CalibrationAlarms status={status} />
        </div>
      </div>
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
      <RunProgress status={status} />
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

/** The status has no word for a measurement of pedestals; its message says what is being taken. */
function RunProgress({ status }: { status: DetectorStatus | null }): JSX.Element | null {
  if (status?.state !== "armed" && status?.state !== "running") return null;
  const { message, progress } = status;
  return (
    <p aria-live="polite">
      {typeof progress === "number" && <progress value={progress} max={1} aria-label="Frames that came" />} {message}
    </p>
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
