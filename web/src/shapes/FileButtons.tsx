// Shapes from and to a file of the user, and as lines of a recipe.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { CopyButton } from "../app/CopyButton";
import { Button } from "../image/controls";
import { offer } from "../image/save";
import { readShapes, writeShapes } from "./check";
import type { Editor } from "./editor";
import { regionsToml } from "./toml";

/** Far more than 256 polygons need. */
const FILE_BYTES_MAX = 16 << 20;

async function shapesIn(file: File) {
  if (file.size > FILE_BYTES_MAX) throw new Error("it is too large for a file of shapes");
  return readShapes(await file.text());
}

export function FileButtons({ editor, detector }: { editor: Editor; detector: string | null }): JSX.Element {
  const problem = useSignal<string | null>(null);
  const load = async (input: HTMLInputElement) => {
    const file = input.files?.[0];
    // So that the same file can be chosen again.
    const forget = () => {
      input.value = "";
    };
    if (!file) return;
    problem.value = null;
    try {
      editor.draft.value.change(await shapesIn(file));
      editor.select(null);
    } catch (error) {
      problem.value = `${file.name} was not loaded: ${error instanceof Error ? error.message : String(error)}`;
    } finally {
      forget();
    }
  };
  const { shapes } = editor;
  const save = () => {
    const name = `${detector ?? "shapes"}_mask_and_regions.json`.replace(/[^\w.-]/g, "_");
    offer(new Blob([writeShapes(shapes)], { type: "application/json" }), name);
  };
  return (
    <fieldset class="toolbar-group editor-files" aria-label="Files">
      <label class="button file-choice">
        Load file
        <input
          type="file"
          class="hidden-text"
          accept=".json,application/json"
          onChange={(event) => load(event.currentTarget)}
        />
      </label>
      <Button text="Save as file" title="Mask and regions as JSON" onPress={save} />
      {shapes.regions.length > 0 && (
        <CopyButton text={() => regionsToml(shapes.regions)} label="Copy regions as TOML" />
      )}
      {problem.value && (
        <p class="wrong" role="alert">
          ✕ {problem.value}
        </p>
      )}
    </fieldset>
  );
}
