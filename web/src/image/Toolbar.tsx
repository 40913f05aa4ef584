// The buttons above the image: which image, which part of it, what lies above it, and what to keep of it.

import type { JSX } from "preact";
import type { Api } from "../api/client";
import { CopyButton } from "../app/CopyButton";
import { Button, Menu } from "./controls";
import { LayerMenu } from "./LayerMenu";
import { shownBy, writeShown } from "./permalink";
import { endReference, keepReference } from "./reference";
import { Steps } from "./Steps";
import { savePicture, savePixels } from "./save";
import { bothOf, choiceText, ONE_IMAGE, readStack, STACK_IMAGES, writeStack } from "./stack";
import { centreOf, toScreen, zoomed } from "./view";
import type { Viewer } from "./viewer";

interface ToolbarProps {
  viewer: Viewer;
}

interface WithApi extends ToolbarProps {
  api: Api;
}

/** Those of a file are chosen in its own bar. */
function Images({ viewer }: ToolbarProps): JSX.Element | null {
  const source = viewer.source.value;
  const hasImage = viewer.header.value !== null;
  if (viewer.file.value !== null) return null;
  return (
    <fieldset class="toolbar-group" aria-label="Which image">
      <Button
        text={source === "latest" ? "❚❚ Freeze" : "▶ Live"}
        title={source === "latest" ? "Keep this image (space)" : "Show the newest images (space)"}
        isOff={source === "latest" && !hasImage}
        onPress={() => viewer.toggleFreeze()}
      />
      <Button
        text="Hits"
        title="Show the newest image that is a hit (h)"
        isPressed={source === "hit"}
        onPress={() => {
          viewer.source.value = source === "hit" ? "latest" : "hit";
        }}
      />
      <Steps viewer={viewer} />
    </fieldset>
  );
}

const STACKS = [[ONE_IMAGE], ...[0, 1].map((by) => STACK_IMAGES.slice(1).map((images) => bothOf(images)[by]))].flat();

function StackChoice({ viewer }: ToolbarProps): JSX.Element {
  return (
    <select
      class="select stack-choice"
      aria-label="Sum or maximum of the last images"
      title="One image, or the sum or the maximum of it and those before it (+ and −)"
      value={writeStack(viewer.stack.value)}
      onChange={(event) => viewer.chooseStack(readStack(event.currentTarget.value) ?? ONE_IMAGE)}
    >
      {STACKS.map(
        (stack) =>
          stack && (
            <option key={writeStack(stack)} value={writeStack(stack)}>
              {choiceText(stack)}
            </option>
          ),
      )}
    </select>
  );
}

export function zoomBy(viewer: Viewer, factor: number): void {
  viewer.changeView((view, canvas) => zoomed(view, toScreen(view, centreOf(view, canvas)), factor));
}

/** In a menu, as the wheel and the keys do the same: the buttons would take a line more from the image. */
function Views({ viewer }: ToolbarProps): JSX.Element {
  const isOff = viewer.header.value === null;
  return (
    <Menu text="View">
      <div class="toolbar-group">
        <Button text="−" title="Zoom out (wheel)" isOff={isOff} onPress={() => zoomBy(viewer, 1 / 1.5)} />
        <Button text="+" title="Zoom in (wheel)" isOff={isOff} onPress={() => zoomBy(viewer, 1.5)} />
        <Button text="Fit" title="All of the image (0, or double click)" isOff={isOff} onPress={() => viewer.fit()} />
        <Button
          text="1:1"
          title="One pixel for each dot of the screen (1)"
          isOff={isOff}
          onPress={() => viewer.oneToOne()}
        />
        <Button
          text="Beam"
          title={viewer.beam() ? "Go to the beam centre (z)" : "The beam centre is not known"}
          isOff={!viewer.beam()}
          onPress={() => viewer.showBeam()}
        />
      </div>
    </Menu>
  );
}

function Permalink({ viewer }: ToolbarProps): JSX.Element {
  const link = new URL(`#/live?${writeShown(shownBy(viewer))}`, document.baseURI);
  return <CopyButton text={link.href} label="Copy link" />;
}

function SaveMenu({ api, viewer }: WithApi): JSX.Element {
  const stack = viewer.header.value?.stack;
  const type = stack && stack.images > 1 ? `The ${stack.by} in 64 bits` : "The numbers in their own type";
  return (
    <Menu text="Save">
      <Button
        text="PNG: what is seen"
        title="The picture with what lies above it"
        onPress={() => savePicture(viewer)}
      />
      <Button text="TIFF: all pixels" title={type} onPress={() => savePixels(api, viewer, "tiff")} />
      <Button text="npy: all pixels" title={`${type}, for numpy.load`} onPress={() => savePixels(api, viewer, "npy")} />
      <Permalink viewer={viewer} />
    </Menu>
  );
}

function ReferenceButton({ viewer }: ToolbarProps): JSX.Element {
  const hasReference = viewer.reference.value !== null;
  return (
    <Button
      text="Reference"
      title={
        hasReference
          ? "Show one image alone again (x)"
          : "Keep as reference: this image stays at the left, beside those that come (k)"
      }
      isPressed={hasReference}
      isOff={!hasReference && (viewer.header.value === null || viewer.capture.value !== null)}
      onPress={() => (hasReference ? endReference(viewer) : keepReference(viewer))}
    />
  );
}

export function Toolbar({ api, viewer }: WithApi): JSX.Element {
  return (
    <section class="toolbar" aria-label="Image">
      <Images viewer={viewer} />
      <StackChoice viewer={viewer} />
      <Views viewer={viewer} />
      <LayerMenu viewer={viewer} />
      <SaveMenu api={api} viewer={viewer} />
      <ReferenceButton viewer={viewer} />
    </section>
  );
}
