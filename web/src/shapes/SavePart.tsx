// Saves what was drawn, and says what becomes of it.

import type { JSX } from "preact";
import { whyNotOperate } from "../app/commands";
import { count, dateAndTime } from "../app/format";
import { SeveritySign } from "../app/Shapes";
import type { Services } from "../app/services";
import { problemsOf } from "./check";
import type { Draft } from "./draft";
import type { Editor } from "./editor";
import type { SavedShapes } from "./model";

interface SaveProps {
  services: Services;
  editor: Editor;
}

const PROBLEMS_SHOWN = 3;

/** Runs what talks to the service, and lets the layers of the image know what it has then. */
function make({ services, editor }: SaveProps) {
  const { connection, api } = services;
  return (what: "save" | "writeOver") => async () => {
    const detector = connection.detector.value;
    if (detector === null) return;
    const found = await editor.draft.value[what](api, detector);
    if (found && connection.detector.value === detector) editor.viewer.shapes.value = found;
  };
}

const authorOf = ({ changed_by, changed_at }: SavedShapes): string =>
  `${changed_by ?? "Somebody"} changed them at ${dateAndTime(changed_at)}`;

/** Somebody else was quicker. */
function Newer(props: SaveProps & { theirs: SavedShapes; why: string | null }): JSX.Element {
  const { editor, theirs, why } = props;
  const draft = editor.draft.value;
  return (
    <div class="strip warning" role="alert">
      <p class="strip-text">
        <SeveritySign severity="warning" /> {authorOf(theirs)}, while you were drawing. Yours are not saved.
      </p>
      <div class="button-row">
        <button type="button" class="button" onClick={() => draft.takeTheirs()}>
          Take theirs
        </button>
        <button
          type="button"
          class="button"
          disabled={why !== null || draft.isBusy.value}
          title={why ?? "Their shapes are replaced by yours"}
          onClick={make(props)("writeOver")}
        >
          Write mine over it
        </button>
      </div>
    </div>
  );
}

function MaskedPixels({ draft }: { draft: Draft }): JSX.Element {
  const base = draft.base.value;
  const words = base?.masked_pixels === 1 ? "pixel is" : "pixels are";
  return (
    <p class="masked-pixels">
      {count(base?.masked_pixels)} {words} masked
      {draft.isChanged.value ? " by what is saved; Save counts those drawn now." : "."}
    </p>
  );
}

function Notes({ base }: { base: SavedShapes }): JSX.Element {
  return (
    <>
      <p class="soft">
        A change applies {base.applies}.{base.changed_by ? ` ${authorOf(base)}.` : ""}
        {base.in_force && " The newest run has these."}
        {base.kept_in ? "" : " They are lost when the service ends."}
      </p>
      {base.notes.map((note) => (
        <p key={note} class="soft">
          {note}
        </p>
      ))}
    </>
  );
}

/** Why the shapes cannot be saved; null if they can. */
function whyNotSave(draft: Draft, why: string | null, isWrong: boolean): string | null {
  if (why !== null) return why;
  if (draft.base.value === null) return "it is not known what the service has";
  if (isWrong) return "something is wrong with the shapes";
  if (draft.newer.value !== null) return "decide first whose shapes stay";
  return draft.isChanged.value ? null : "nothing was changed";
}

export function SavePart(props: SaveProps): JSX.Element {
  const { services, editor } = props;
  const draft = editor.draft.value;
  const [base, newer, problem] = [draft.base.value, draft.newer.value, draft.problem.value];
  const mayNot = whyNotOperate(services.connection.contact.value);
  const wrong = problemsOf(draft.history.value.now);
  const why = whyNotSave(draft, mayNot, wrong.length > 0);
  return (
    <section class="editor-save" aria-label="Save">
      {newer && <Newer {...props} theirs={newer} why={mayNot} />}
      {problem && (
        <p class="wrong" role="alert">
          ✕ {problem.detail}
          {problem.hint && ` (${problem.hint})`}
        </p>
      )}
      {wrong.slice(0, PROBLEMS_SHOWN).map((one) => (
        <p key={one} class="wrong">
          ✕ {one}
        </p>
      ))}
      {wrong.length > PROBLEMS_SHOWN && <p class="wrong">✕ There are {wrong.length - PROBLEMS_SHOWN} more problems.</p>}
      <MaskedPixels draft={draft} />
      {base && <Notes base={base} />}
      <div class="button-row">
        <button
          type="button"
          class="button primary"
          disabled={why !== null || draft.isBusy.value}
          aria-describedby="why-save-shapes"
          onClick={make(props)("save")}
        >
          Save
        </button>
        <button type="button" class="button" disabled={!draft.isChanged.value} onClick={() => draft.discard()}>
          Discard
        </button>
        <span id="why-save-shapes" class={mayNot === null ? "soft" : "strip-text"}>
          {why ?? <strong>● Not saved yet</strong>}
        </span>
      </div>
    </section>
  );
}
