// The shapes of the mask, or the regions, one under the other; the selected one with its numbers.

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Button } from "../image/controls";
import type { Editor } from "./editor";
import { described, FORM_WORDS, FORMS_OF, type Place, type Shape } from "./model";
import { ShapeFields } from "./ShapeFields";

interface RowProps {
  editor: Editor;
  place: Place;
  shape: Shape;
  name: string | null;
}

function Row({ editor, place, shape, name }: RowProps): JSX.Element {
  const row = useRef<HTMLLIElement>(null);
  const isSelected = editor.selected?.list === place.list && editor.selected.index === place.index;
  useEffect(() => {
    if (isSelected) row.current?.scrollIntoView({ block: "nearest" });
  }, [isSelected]);
  return (
    <li ref={row} class={isSelected ? "shape-row selected" : "shape-row"}>
      <button
        type="button"
        class="button shape-name"
        aria-pressed={isSelected}
        onClick={() => editor.select(isSelected ? null : place)}
      >
        <span>
          {name === null ? place.index + 1 : <strong>{name || "no name"}</strong>}: {described(shape)}
        </span>
      </button>
      {isSelected && <ShapeFields editor={editor} place={place} shape={shape} />}
    </li>
  );
}

export function ShapeList({ editor }: { editor: Editor }): JSX.Element {
  const list = editor.list.value;
  const { mask, regions } = editor.shapes;
  const rows =
    list === "mask"
      ? mask.map((shape) => ({ shape, name: null }))
      : regions.map(({ name, shape }) => ({ shape, name: name as string | null }));
  return (
    <>
      {rows.length === 0 && <p class="soft">{list === "mask" ? "Nothing is masked by hand." : "No regions."}</p>}
      <ul class="shape-list">
        {rows.map(({ shape, name }, index) => (
          <Row key={index} editor={editor} place={{ list, index }} shape={shape} name={name} />
        ))}
      </ul>
      <fieldset class="toolbar-group" aria-label="Add a shape by numbers">
        <span class="soft">Add by numbers</span>
        {FORMS_OF[list].map((form) => (
          <Button
            key={form}
            text={`+ ${FORM_WORDS[form]}`}
            title={`Add a ${FORM_WORDS[form].toLowerCase()} in the middle of what is seen`}
            onPress={() => editor.addForm(form)}
          />
        ))}
      </fieldset>
    </>
  );
}
