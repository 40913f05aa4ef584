// Above the images of a finished file: which file, which image, and how fast it goes through them.

import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { Api } from "../api/client";
import { fileName, UNKNOWN } from "../app/format";
import { useLoaded } from "../app/useLoaded";
import { Button } from "./controls";
import { RATES_HZ } from "./playback";
import { Steps } from "./Steps";
import type { Viewer } from "./viewer";

interface FileProps {
  api: Api;
  viewer: Viewer;
}

/** Asks how many images the file has. Gives why that is not known. */
function useImages({ api, viewer }: FileProps): string | null {
  const file = viewer.file.value;
  const detector = viewer.connection.detector.value;
  const isConnected = viewer.connection.contact.value.kind === "connected";
  const loaded = useLoaded(() => {
    if (file === null || detector === null || !isConnected) return null;
    return api.file(file, detector, { check: false }).then(({ images }) => ({ file, images }));
  }, [api, file, detector, isConnected]);
  const { value, problem } = loaded;
  useEffect(() => {
    if (value?.file === file) viewer.fileImages.value = value.images;
  }, [viewer, value, file]);
  useEffect(() => () => viewer.playback.stop(), [viewer]);
  return value?.file === file ? null : (problem && [problem.detail, problem.hint].filter(Boolean).join("; ")) || null;
}

function Player({ viewer }: { viewer: Viewer }): JSX.Element {
  const { playback } = viewer;
  const isPlaying = playback.isPlaying.value;
  return (
    <fieldset class="toolbar-group" aria-label="Images of the file">
      <Button
        text={isPlaying ? "❚❚ Pause" : "▶ Play"}
        title={isPlaying ? "Stay at this image (space)" : "Go through the images (space)"}
        isOff={viewer.extent() === null}
        onPress={() => playback.toggle()}
      />
      <select
        class="select"
        aria-label="Images in a second"
        title="Images in a second, if they come that fast"
        value={playback.rateHz.value}
        onChange={(event) => playback.setRate(Number(event.currentTarget.value))}
      >
        {RATES_HZ.map((hz) => (
          <option key={hz} value={hz}>
            {hz} Hz
          </option>
        ))}
      </select>
      <Steps viewer={viewer} />
    </fieldset>
  );
}

function Place({ viewer }: { viewer: Viewer }): JSX.Element {
  const image = viewer.currentImage();
  const isLost = viewer.header.value?.image === image && viewer.header.value?.status === "lost";
  return (
    <span class="file-place">
      image {image ?? UNKNOWN} of {viewer.fileImages.value ?? UNKNOWN}
      {isLost && <strong class="file-lost"> ⚠ lost: it has no pixels</strong>}
    </span>
  );
}

export function FileBar({ api, viewer }: FileProps): JSX.Element | null {
  const why = useImages({ api, viewer });
  const file = viewer.file.value;
  const extent = viewer.extent();
  const leave = () => {
    viewer.closeFile();
    history.replaceState(null, "", "#/live");
  };
  if (file === null) return null;
  return (
    <section class="file-bar" aria-label="File">
      <strong class="file-name" title={file}>
        {fileName(file)}
      </strong>
      <Place viewer={viewer} />
      <Button text="Back to live" title="Show the newest images of the detector" onPress={leave} />
      <Player viewer={viewer} />
      <input
        type="range"
        class="file-slider"
        aria-label="Image of the file"
        min={0}
        max={extent?.last ?? 0}
        disabled={extent === null}
        value={viewer.currentImage() ?? 0}
        onInput={(event) => viewer.goTo(Number(event.currentTarget.value))}
      />
      {why && (
        <p class="file-problem" role="alert">
          ✕ The file cannot be read: {why}
        </p>
      )}
    </section>
  );
}
