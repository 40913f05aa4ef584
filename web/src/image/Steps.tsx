// From image to image: by one, to the ends, to a number.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { Button } from "./controls";
import type { Viewer } from "./viewer";

function GoTo({ viewer }: { viewer: Viewer }): JSX.Element {
  // What somebody writes is not overwritten by the next frame.
  const written = useSignal<string | null>(null);
  const image = viewer.header.value?.image;
  const go = (event: Event) => {
    event.preventDefault();
    if (written.value !== null && /^\d+$/.test(written.value)) viewer.goTo(Number(written.value));
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
  };
  return (
    <form class="toolbar-goto" onSubmit={go}>
      <input
        class="number-input goto-number"
        inputMode="numeric"
        aria-label="Number of the image"
        title="Go to this image (g)"
        placeholder="–"
        value={written.value ?? image ?? ""}
        onFocus={(event) => {
          written.value = event.currentTarget.value;
          event.currentTarget.select();
        }}
        onInput={(event) => {
          written.value = event.currentTarget.value;
        }}
        onBlur={() => {
          written.value = null;
        }}
      />
    </form>
  );
}

export function Steps({ viewer }: { viewer: Viewer }): JSX.Element {
  const extent = viewer.extent();
  const hasImage = viewer.header.value !== null;
  const isFile = viewer.file.value !== null;
  return (
    <>
      <Button
        text="|◀"
        title={isFile ? "First image of the file (Home)" : "Oldest image that is kept (Home)"}
        isOff={!extent}
        onPress={() => extent && viewer.goTo(extent.first)}
      />
      <Button text="◀" title="Image before (←)" isOff={!hasImage} onPress={() => viewer.step(-1)} />
      <GoTo viewer={viewer} />
      <Button text="▶" title="Image after (→)" isOff={!hasImage} onPress={() => viewer.step(1)} />
      <Button
        text="▶|"
        title={isFile ? "Last image of the file (End)" : "Newest image, and stay there (End)"}
        isOff={!extent}
        onPress={() => extent && viewer.goTo(extent.last)}
      />
    </>
  );
}
