// Sums and maxima of the last images: what can be chosen, and what a frame says that it is.

import type { FrameHeader } from "./frame";

/** What a frame is of: one image, or the last ones pixel by pixel. */
export interface StackChoice {
  by: "sum" | "maximum";
  images: number;
}

export const STACK_IMAGES = [1, 5, 10, 50];
/** Most images that the service puts together. */
export const STACK_MOST = 100;
export const ONE_IMAGE: StackChoice = { by: "sum", images: 1 };

/** More or fewer images; the ends stay. */
export function stepped({ by, images }: StackChoice, steps: number): StackChoice {
  const place = STACK_IMAGES.filter((count) => count <= images).length - 1;
  const wanted = Math.min(STACK_IMAGES.length - 1, Math.max(0, place + steps));
  return { by, images: STACK_IMAGES[wanted] ?? 1 };
}

/** As in an address and in the value of a control: `sum,10`. */
export const writeStack = ({ by, images }: StackChoice): string => (images === 1 ? "1" : `${by},${images}`);

/** Null if the text is none that was written. */
export function readStack(text: string | null): StackChoice | null {
  const choices = [ONE_IMAGE, ...STACK_IMAGES.slice(1).flatMap(bothOf)];
  return choices.find((choice) => writeStack(choice) === text) ?? null;
}

export const bothOf = (images: number): StackChoice[] => [
  { by: "sum", images },
  { by: "maximum", images },
];

export function choiceText({ by, images }: StackChoice): string {
  if (images === 1) return "One image";
  return by === "sum" ? `Sum of ${images}` : `Maximum of ${images}`;
}

/** The image or the images that a frame is of. */
export function imagesText({ image, stack, label }: FrameHeader): string {
  if (label) return label;
  if (!stack) return `image ${image}`;
  if (stack.images < 2) return `image ${image}, no other is there for the ${stack.by}`;
  // Between the first and the last there may be some that are not kept.
  const all = image - stack.first + 1;
  const some = all === stack.images ? "" : ` (${stack.images} of them)`;
  return `${stack.by} of images ${stack.first} to ${image}${some}`;
}

/** Changes with what the numbers of a frame are. */
export const stackOf = ({ stack }: FrameHeader): string => (stack ? `${stack.by} ${stack.images}` : "");
