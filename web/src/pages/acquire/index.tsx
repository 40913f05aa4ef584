// The next run: what it is to be, and the commands in their order.

import { type Signal, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { ApiProblem } from "../../api/client";
import { whyNotOperate } from "../../app/commands";
import { Check, ChoiceField, TextField } from "../../app/Field";
import { ProblemStrip } from "../../app/Strips";
import { isCurrent, type PageProps, shownStatus } from "../../app/services";
import { Commands, LastCommand } from "./Commands";
import { remarksOf } from "./dryRun";
import { EMPTY_FORM, type Form, METADATA_FIELDS, type WriteChoice } from "./fields";
import { checkForm } from "./form";
import { Needs } from "./Needs";
import { PresetRow } from "./PresetRow";
import { readForm } from "./presets";
import { SnippetCard } from "./SnippetCard";
import { useDryRun } from "./useDryRun";
import "./acquire.css";

/** What is being typed survives a look at another page. */
const FORM_KEY = "konkordia.acquire";

const FIELD_NAMES = new Set(["images", "prefix", ...METADATA_FIELDS.map(({ name }) => name)]);

function useForm(): Signal<Form> {
  const kept = useMemo(() => {
    try {
      return readForm(JSON.parse(sessionStorage.getItem(FORM_KEY) ?? "null"));
    } catch {
      return EMPTY_FORM;
    }
  }, []);
  return useSignal(kept);
}

export function AcquirePage({ services }: PageProps): JSX.Element {
  const { connection, api } = services;
  const form = useForm();
  const problem = useSignal<ApiProblem | null>(null);
  const detector = connection.detector.value;
  const change = (fields: Partial<Form>): void => {
    form.value = { ...form.value, ...fields };
    sessionStorage.setItem(FORM_KEY, JSON.stringify(form.value));
  };
  const checked = checkForm(form.value);
  const whyNot = whyNotOperate(connection.contact.value);
  const status = shownStatus(connection);
  const asked = useDryRun(api, {
    detector: isCurrent(connection) ? detector : null,
    request: checked.request,
    state: `${status?.run} ${status?.state}`,
  });
  const remarks = remarksOf(asked.answer, FIELD_NAMES);
  // What was just refused for this reason need not be said twice.
  const others = remarks.others.filter((words) => !problem.value || !words.startsWith(problem.value.detail));
  return (
    <div class="columns">
      <section class="card" aria-label="The next run">
        <h1>The next run</h1>
        {whyNot && (
          <div class="strip warning" role="status">
            <div class="strip-text">You cannot operate: {whyNot}. The texts to copy work nevertheless.</div>
          </div>
        )}
        <PresetRow form={form.value} onLoad={(loaded) => change(loaded)} />
        <RunFields form={form.value} wrong={{ ...remarks.fields, ...checked.wrong }} onChange={change} />
        <section class="command-bar" aria-label="Commands">
          {problem.value && (
            <ProblemStrip
              problem={problem.value}
              onClose={() => {
                problem.value = null;
              }}
            />
          )}
          <Needs asked={asked} others={others} />
          <Commands services={services} status={status} checked={checked} problem={problem} />
          <LastCommand events={connection.events.value} detector={detector} />
        </section>
      </section>
      <SnippetCard services={services} request={checked.request} />
    </div>
  );
}

interface FieldsProps {
  form: Form;
  wrong: Record<string, string>;
  onChange: (fields: Partial<Form>) => void;
}

const WRITE_CHOICES: readonly (readonly [WriteChoice, string])[] = [
  ["configured", "as configured"],
  ["yes", "yes"],
  ["no", "no, only look"],
];

function RunFields({ form, wrong, onChange }: FieldsProps): JSX.Element {
  return (
    <>
      <div class="fields">
        <div>
          <TextField
            label="Images"
            inputMode="numeric"
            value={form.isUntilStopped ? "" : form.images}
            placeholder={form.isUntilStopped ? "until stopped" : "as configured"}
            wrong={wrong.images}
            onInput={(images) => onChange({ images, isUntilStopped: false })}
          />
          <Check
            label="Until stopped"
            isOn={form.isUntilStopped}
            onInput={(isUntilStopped) => onChange({ isUntilStopped })}
          />
        </div>
        <TextField
          label="Prefix of the files"
          value={form.prefix}
          placeholder="as configured, numbered"
          note="for example lyso_run03"
          wrong={wrong.prefix}
          onInput={(prefix) => onChange({ prefix })}
        />
        <ChoiceField
          label="Write files"
          value={form.write}
          choices={WRITE_CHOICES}
          onInput={(write) => onChange({ write: write as WriteChoice })}
        />
      </div>
      <h2>For the file</h2>
      <div class="fields">
        {METADATA_FIELDS.map(({ name, label, kind }) => (
          <TextField
            key={name}
            label={label}
            value={form.metadata[name] ?? ""}
            placeholder="as configured"
            inputMode={kind === "number" ? "decimal" : "text"}
            wrong={wrong[name]}
            onInput={(value) => onChange({ metadata: { ...form.metadata, [name]: value } })}
          />
        ))}
      </div>
    </>
  );
}
