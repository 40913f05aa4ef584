// A labelled field of a form, with its note and with what is wrong with its value.

import type { JSX } from "preact";
import { useId } from "preact/hooks";

interface FieldProps {
  label: string;
  value: string;
  onInput: (value: string) => void;
  note?: string | undefined;
  wrong?: string | null | undefined;
  placeholder?: string;
  inputMode?: "text" | "numeric" | "decimal";
}

export function TextField({ label, value, onInput, note, wrong, placeholder, inputMode }: FieldProps): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        value={value}
        inputMode={inputMode ?? "text"}
        placeholder={placeholder ?? ""}
        autocomplete="off"
        spellcheck={false}
        aria-invalid={Boolean(wrong)}
        aria-describedby={`${id}-note ${id}-wrong`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <span class="note" id={`${id}-note`}>
        {note}
      </span>
      <span class="wrong" id={`${id}-wrong`} aria-live="polite">
        {wrong}
      </span>
    </div>
  );
}

interface ChoiceProps {
  label: string;
  value: string;
  choices: readonly (readonly [value: string, words: string])[];
  onInput: (value: string) => void;
  note?: string;
}

export function ChoiceField({ label, value, choices, onInput, note }: ChoiceProps): JSX.Element {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} aria-describedby={`${id}-note`} onInput={(e) => onInput(e.currentTarget.value)}>
        {choices.map(([choice, words]) => (
          <option key={choice} value={choice}>
            {words}
          </option>
        ))}
      </select>
      <span class="note" id={`${id}-note`}>
        {note}
      </span>
    </div>
  );
}

interface CheckProps {
  label: string;
  isOn: boolean;
  onInput: (isOn: boolean) => void;
}

export function Check({ label, isOn, onInput }: CheckProps): JSX.Element {
  return (
    <label class="check">
      <input type="checkbox" checked={isOn} onInput={(event) => onInput(event.currentTarget.checked)} />
      {label}
    </label>
  );
}
