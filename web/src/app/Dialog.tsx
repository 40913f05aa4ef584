// A dialog above the page; Escape closes it, and the focus goes back to where it was.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ title, onClose, children }: DialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const shown = dialog.current;
    shown?.showModal();
    // Otherwise the first button has the focus, and a long dialog opens at its end.
    shown?.focus({ preventScroll: true });
    shown?.scrollTo(0, 0);
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog class="dialog" ref={dialog} aria-label={title} tabIndex={-1} onClose={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}
