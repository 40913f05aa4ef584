// `?` shows the keys.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { KEYS as LIVE_KEYS } from "../pages/live/keys";
import { EDITOR_KEYS } from "../shapes/keys";
import { Dialog } from "./Dialog";

const KEYS = [
  { key: "?", does: "show these keys" },
  { key: "Escape", does: "close a dialog" },
  { key: "Tab, Shift + Tab", does: "go to the next or the previous control" },
  { key: "Enter, Space", does: "press the control" },
];

/** Keys of letters are not ours while somebody writes. */
export function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, [contenteditable]") !== null;
}

function KeyTable({ title, keys }: { title: string; keys: readonly { key: string; does: string }[] }): JSX.Element {
  return (
    <table class="table keys-table">
      <caption class="keys-caption">{title}</caption>
      <tbody>
        {keys.map(({ key, does }) => (
          <tr key={key}>
            <th scope="row">
              <kbd>{key}</kbd>
            </th>
            <td>{does}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Keys(): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent): void => {
      if (event.key !== "?" || event.ctrlKey || event.altKey || event.metaKey || isWriting(event.target)) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <>
      <button type="button" class="button" aria-label="Keys" title="Keys (?)" onClick={() => setOpen(true)}>
        ?
      </button>
      {isOpen && (
        <Dialog title="Keys" onClose={() => setOpen(false)}>
          <KeyTable title="Everywhere" keys={KEYS} />
          <KeyTable title="On the page Live" keys={LIVE_KEYS} />
          <KeyTable title="While mask and regions are edited" keys={EDITOR_KEYS} />
          <form method="dialog" class="button-row dialog-end">
            <button type="submit" class="button primary">
              Close
            </button>
          </form>
        </Dialog>
      )}
    </>
  );
}
