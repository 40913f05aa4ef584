// The tabs beside the image.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { Services } from "../../app/services";
import type { Viewer } from "../../image/viewer";
import { EditorButton } from "../../shapes/EditorButton";
import { InfoTab } from "./InfoTab";
import { ProfileTab, RegionsTab } from "./ListTabs";
import { listOf } from "./numbers";
import { SpotsTab } from "./SpotsTab";

const TABS = [
  { id: "info", name: "Image info", Content: InfoTab, needs: null },
  { id: "spots", name: "Spots", Content: SpotsTab, needs: null },
  { id: "profile", name: "Profile", Content: ProfileTab, needs: "profile_intensity" },
  { id: "regions", name: "Regions", Content: RegionsTab, needs: "region_pixels" },
] as const;

type TabId = (typeof TABS)[number]["id"];

export function Tabs({ services, viewer }: { services: Services; viewer: Viewer }): JSX.Element {
  const chosen = useSignal<TabId>("info");
  const list = useRef<HTMLDivElement>(null);
  const results = viewer.header.value?.results ?? null;
  const tabs = TABS.filter(({ id, needs }) => needs === null || id === chosen.value || listOf(results, needs));
  const move = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const place = tabs.findIndex(({ id }) => id === chosen.value);
    const next = tabs[(place + by + tabs.length) % tabs.length];
    if (!next) return;
    chosen.value = next.id;
    list.current?.querySelector<HTMLElement>(`#tab-${next.id}`)?.focus();
  };
  const shown = TABS.find(({ id }) => id === chosen.value) ?? TABS[0];
  return (
    <aside class="live-side" aria-label="About the image">
      <div class="tab-row">
        <div class="tab-list" role="tablist" aria-label="About the image" ref={list} onKeyDown={move}>
          {tabs.map(({ id, name }) => (
            <button
              key={id}
              type="button"
              id={`tab-${id}`}
              role="tab"
              class="tab"
              aria-selected={id === chosen.value}
              aria-controls="tab-content"
              tabIndex={id === chosen.value ? 0 : -1}
              onClick={() => {
                chosen.value = id;
              }}
            >
              {name}
            </button>
          ))}
        </div>
        <EditorButton viewer={viewer} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <div class="tab-content" id="tab-content" role="tabpanel" aria-labelledby={`tab-${shown.id}`} tabIndex={0}>
        <shown.Content services={services} viewer={viewer} />
      </div>
    </aside>
  );
}
