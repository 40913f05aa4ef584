// Small controls of the image.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface ButtonProps {
  text: string;
  title: string;
  onPress: () => void;
  isPressed?: boolean;
  isOff?: boolean;
}

export function Button({ text, title, onPress, isPressed, isOff = false }: ButtonProps): JSX.Element {
  const pressed = isPressed === undefined ? {} : { "aria-pressed": isPressed };
  // Signs are no words: a screen reader gets the title.
  const label = /[a-z0-9]/i.test(text) ? {} : { "aria-label": title };
  return (
    <button type="button" class="button" title={title} disabled={isOff} onClick={onPress} {...pressed} {...label}>
      {text}
    </button>
  );
}

/** A button that opens more; closed by Escape and by a press elsewhere. */
export function Menu({ text, children }: { text: string; children: ComponentChildren }): JSX.Element {
  const menu = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const elsewhere = (event: Event) => {
      if (menu.current?.open && !menu.current.contains(event.target as Node)) menu.current.open = false;
    };
    const close = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !menu.current?.open) return;
      menu.current.open = false;
      menu.current.querySelector("summary")?.focus();
    };
    document.addEventListener("pointerdown", elsewhere);
    document.addEventListener("keydown", close);
    return () => {
      document.removeEventListener("pointerdown", elsewhere);
      document.removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details class="menu" ref={menu}>
      <summary class="button">{text} ▾</summary>
      <div class="menu-content">{children}</div>
    </details>
  );
}

interface CheckProps {
  text: string;
  isOn: boolean;
  isOff?: boolean;
  onChange: (isOn: boolean) => void;
}

export function Check({ text, isOn, isOff = false, onChange }: CheckProps): JSX.Element {
  return (
    <label class="check">
      <input
        type="checkbox"
        checked={isOn}
        disabled={isOff}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
      {text}
    </label>
  );
}
