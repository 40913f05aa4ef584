// The numbers of a shape, and the name of a region. What is wrong is said and not taken.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { TextField } from "../app/Field";
import { FIELDS, type NumberField, wrongName, wrongNumber, wrongShape } from "./check";
import type { Editor } from "./editor";
import { type Place, type Polygon, renamed, type Shape } from "./model";

interface FieldProps {
  editor: Editor;
  place: Place;
  shape: Shape;
}

interface TypedProps {
  label: string;
  /** As it is now: what was typed gives way when the shape is changed in another way. */
  text: string;
  /** What is wrong with a text; null if it was taken. */
  take: (text: string) => string | null;
  note?: string;
}

/** A field that keeps what was typed as long as that says the same, as 7. and 7 do. */
function useTyped({ text, take }: Pick<TypedProps, "text" | "take">) {
  const typed = useSignal(text);
  const last = useSignal(text);
  const wrong = useSignal<string | null>(null);
  // At once: what is typed next must not be taken for another change.
  useLayoutEffect(() => {
    if (text === last.value) return;
    last.value = text;
    typed.value = text;
    wrong.value = null;
  }, [text, last, typed, wrong]);
  const input = (now: string, textOf: (now: string) => string) => {
    typed.value = now;
    wrong.value = take(now);
    if (wrong.value === null) last.value = textOf(now);
  };
  return { typed: typed.value, wrong: wrong.value, input };
}

function NumberInput({ label, text, take, note }: TypedProps): JSX.Element {
  const { typed, wrong, input } = useTyped({ text, take });
  return (
    <TextField
      label={label}
      value={typed}
      onInput={(now) => input(now, (one) => (one.trim() === "" ? "" : String(Number(one))))}
      wrong={wrong}
      note={note}
      inputMode="decimal"
    />
  );
}

function OneNumber({ editor, place, shape, field }: FieldProps & { field: NumberField }): JSX.Element {
  const value = (shape as unknown as Record<string, unknown>)[field.key];
  const take = (text: string): string | null => {
    const isBeam = field.mayBeBeam && text.trim() === "";
    const number = isBeam ? null : text.trim() === "" ? Number.NaN : Number(text);
    const wrong = wrongNumber(field, number);
    if (wrong) return wrong;
    const { [field.key]: _, ...others } = shape as unknown as Record<string, unknown>;
    const changed = (isBeam ? others : { ...shape, [field.key]: number }) as unknown as Shape;
    editor.change(place, changed, `number ${field.key}`);
    return null;
  };
  const text = typeof value === "number" ? String(value) : "";
  return (
    <NumberInput
      label={field.text}
      text={text}
      take={take}
      {...(field.mayBeBeam ? { note: "empty: that of the beam" } : {})}
    />
  );
}

const cornersText = ({ points }: Polygon) => points.map(([x, y]) => `${x}, ${y}`).join("\n");

function cornersOf(text: string): [number, number][] {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return lines.map((line) => {
    const [x, y, ...others] = line.trim().split(/[\s,;]+/);
    return x && y && others.length === 0 ? [Number(x), Number(y)] : [Number.NaN, Number.NaN];
  });
}

function Corners({ editor, place, shape }: FieldProps & { shape: Polygon }): JSX.Element {
  const take = (text: string): string | null => {
    const changed: Polygon = { form: "polygon", points: cornersOf(text) };
    const wrong = wrongShape(changed, "mask");
    if (wrong === null) editor.change(place, changed, "corners");
    return wrong;
  };
  const { typed, wrong, input } = useTyped({ text: cornersText(shape), take });
  return (
    <label class="field corners">
      Corners: x and y, one in each line
      <textarea
        rows={Math.min(8, shape.points.length + 1)}
        spellcheck={false}
        value={typed}
        aria-invalid={wrong !== null}
        onInput={(event) =>
          input(event.currentTarget.value, (now) => cornersText({ form: "polygon", points: cornersOf(now) }))
        }
      />
      <span class="wrong" aria-live="polite">
        {wrong}
      </span>
    </label>
  );
}

function Name({ editor, index }: { editor: Editor; index: number }): JSX.Element {
  const { regions } = editor.shapes;
  const rename = (name: string) => {
    const { draft } = editor;
    draft.value.change(renamed(draft.value.history.value.now, index, name), `name ${index}`);
  };
  return (
    <TextField label="Name" value={regions[index]?.name ?? ""} onInput={rename} wrong={wrongName(regions, index)} />
  );
}

export function ShapeFields(props: FieldProps): JSX.Element {
  const { editor, place, shape } = props;
  return (
    <div class="shape-fields">
      {place.list === "regions" && <Name editor={editor} index={place.index} />}
      {shape.form === "polygon" ? (
        <Corners {...props} shape={shape} />
      ) : (
        (FIELDS[shape.form] ?? []).map((field) => <OneNumber key={field.key} {...props} field={field} />)
      )}
      <button type="button" class="button danger" title="Delete this shape (Delete)" onClick={() => editor.remove()}>
        Delete
      </button>
    </div>
  );
}
