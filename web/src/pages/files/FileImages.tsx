// The images of a file by number, as small pictures; the page Live shows them whole.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { type Api, type ApiProblem, type FileInfo, problemOf } from "../../api/client";
import { count } from "../../app/format";
import { imageOf, liveLink } from "./facts";

/** Longest side of the picture that is asked for, in pixels. */
const SIDE_PX = 512;
/** A number that is being typed is not yet asked for. */
const TYPED_MS = 150;

interface ImagesProps {
  api: Api;
  detector: string;
  master: string;
  info: FileInfo;
}

export function FileImages({ api, detector, master, info }: ImagesProps): JSX.Element {
  const text = useSignal("0");
  const id = useId();
  const image = imageOf(text.value, info.images);
  const last = info.images - 1;
  const go = (number: number): void => {
    text.value = String(Math.min(Math.max(number, 0), last));
  };
  if (info.images === 0) {
    return (
      <section class="card" aria-label="Images of the file">
        <h2>Images</h2>
        <p class="soft">The file has no images.</p>
      </section>
    );
  }
  return (
    <section class="card stack" aria-label="Images of the file">
      <h2>Images</h2>
      <div class="button-row image-row">
        <button type="button" class="button" disabled={image === 0} onClick={() => go((image ?? 1) - 1)}>
          Previous
        </button>
        <div class="field image-number">
          <label for={id}>Image, 0 to {count(last)}</label>
          <input
            id={id}
            inputMode="numeric"
            autocomplete="off"
            value={text.value}
            aria-invalid={image === null}
            onInput={(event) => {
              text.value = event.currentTarget.value;
            }}
          />
        </div>
        <button type="button" class="button" disabled={image === last} onClick={() => go((image ?? -1) + 1)}>
          Next
        </button>
        {image !== null && (
          <a class="button" href={liveLink(detector, master, image)}>
            Open on the page Live
          </a>
        )}
      </div>
      {image === null ? (
        <p class="wrong" role="alert">
          There is no such image: give a number from 0 to {count(last)}.
        </p>
      ) : (
        <Picture api={api} detector={detector} master={master} image={image} />
      )}
    </section>
  );
}

interface PictureProps {
  api: Api;
  detector: string;
  master: string;
  image: number;
}

function Picture({ api, detector, master, image }: PictureProps): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const problem = useSignal<ApiProblem | null>(null);
  const wanted = JSON.stringify([detector, master, image]);
  // What the canvas or the problem is of. Said by name, so that nobody takes the last image for the next one.
  const settled = useSignal("");
  useEffect(() => {
    let isWanted = true;
    const show = async (): Promise<void> => {
      try {
        const picture = await createImageBitmap(await api.picture(image, { detector, file: master, side: SIDE_PX }));
        if (isWanted) draw(canvas.current, picture);
        if (isWanted) problem.value = null;
      } catch (error) {
        if (isWanted) problem.value = problemOf(error);
      }
      if (isWanted) settled.value = wanted;
    };
    const timer = setTimeout(() => void show(), TYPED_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [api, wanted]);
  return (
    <>
      {problem.value && (
        <p class="wrong" role="alert">
          {problem.value.detail}
        </p>
      )}
      <canvas
        ref={canvas}
        class="file-picture"
        role="img"
        aria-label={`Image ${image}, logarithmic scale`}
        aria-busy={settled.value !== wanted}
        hidden={problem.value !== null}
      />
      <p class="soft">Logarithmic scale; grey: no measurement.</p>
    </>
  );
}

function draw(canvas: HTMLCanvasElement | null, picture: ImageBitmap): void {
  if (canvas !== null) {
    canvas.width = picture.width;
    canvas.height = picture.height;
    canvas.getContext("2d")?.drawImage(picture, 0, 0);
  }
  picture.close();
}
