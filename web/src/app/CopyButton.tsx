// A button that puts a text on the clipboard and says so.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

const SHOWN_MS = 2000;

interface CopyProps {
  /** A long one is made only when it is wanted. */
  text: string | (() => string);
  label?: string;
}

export function CopyButton({ text, label = "Copy" }: CopyProps): JSX.Element {
  const [outcome, setOutcome] = useState<string | null>(null);
  useEffect(() => {
    if (outcome === null) return;
    const timer = setTimeout(() => setOutcome(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [outcome]);
  const copy = async (): Promise<void> => {
    const isCopied = await copyText(typeof text === "string" ? text : text());
    setOutcome(isCopied ? "Copied" : "Select it and copy by hand");
  };
  return (
    <button type="button" class="button" onClick={copy}>
      <span aria-live="polite">{outcome ?? label}</span>
    </button>
  );
}

async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** Browsers have no clipboard for pages that come over plain HTTP from another machine; this works there, too. */
function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden-text";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
