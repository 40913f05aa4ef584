// Forms under a name: load, save, delete.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useId } from "preact/hooks";
import type { Form } from "./fields";
import { loadPresets, savePresets } from "./presets";

export function PresetRow({ form, onLoad }: { form: Form; onLoad: (form: Form) => void }): JSX.Element {
  const presets = useSignal(loadPresets(localStorage));
  const name = useSignal("");
  const id = useId();
  const names = Object.keys(presets.value).sort();
  const keep = (changed: typeof presets.value): void => {
    presets.value = changed;
    savePresets(localStorage, changed);
  };
  const load = (chosen: string): void => {
    name.value = chosen;
    const preset = presets.value[chosen];
    if (preset) onLoad(preset);
  };
  const remove = (): void => {
    const { [name.value]: _, ...others } = presets.value;
    keep(others);
  };
  const isKept = names.includes(name.value);
  return (
    <fieldset class="preset-row">
      <legend class="hidden-text">Presets, kept in this browser</legend>
      <label class="labelled">
        Presets
        <select class="select" value={isKept ? name.value : ""} onInput={(event) => load(event.currentTarget.value)}>
          <option value="">{names.length > 0 ? "choose" : "none yet"}</option>
          {names.map((preset) => (
            <option key={preset} value={preset}>
              {preset}
            </option>
          ))}
        </select>
      </label>
      <label class="labelled" for={id}>
        Name
      </label>
      <input
        id={id}
        class="select"
        value={name.value}
        onInput={(event) => {
          name.value = event.currentTarget.value;
        }}
      />
      <button
        type="button"
        class="button"
        disabled={name.value.trim() === ""}
        onClick={() => keep({ ...presets.value, [name.value.trim()]: form })}
      >
        Save
      </button>
      <button type="button" class="button" disabled={!isKept} onClick={remove}>
        Delete
      </button>
    </fieldset>
  );
}
