// Name, pages, detector, who is here, keys and theme.

import type { JSX } from "preact";
import { Keys } from "./KeysDialog";
import { PAGES, type PageId } from "./route";
import type { Services } from "./services";
import { chooseTheme, type Theme, theme } from "./theme";

export function Header({ services, page }: { services: Services; page: PageId }): JSX.Element {
  return (
    <header class="header">
      <a class="brand" href="#/live">
        Konkordia
      </a>
      <nav aria-label="Pages">
        {PAGES.map(({ id, name }) => (
          <a key={id} href={`#/${id}`} aria-current={id === page ? "page" : undefined}>
            {name}
          </a>
        ))}
      </nav>
      <div class="header-end">
        <DetectorChoice services={services} />
        <Person services={services} />
        <ThemeChoice />
        <Keys />
      </div>
    </header>
  );
}

function DetectorChoice({ services: { connection } }: { services: Services }): JSX.Element | null {
  const names = connection.detectors.value?.map(({ detector }) => detector) ?? [];
  const shown = connection.detector.value;
  if (names.length < 2) {
    return shown === null ? null : (
      <span>
        Detector <strong>{shown}</strong>
      </span>
    );
  }
  return (
    <label class="labelled">
      Detector
      <select
        class="select"
        value={shown ?? ""}
        onInput={(event) => connection.showDetector(event.currentTarget.value)}
      >
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

const ROLES = { view: "may look", operate: "may operate", configure: "may operate" };

function Person({ services: { connection } }: { services: Services }): JSX.Element | null {
  const contact = connection.contact.value;
  if (contact.kind !== "connected") return null;
  return (
    <>
      <span class="soft person">
        signed in as {contact.name}, {ROLES[contact.role]}
      </span>
      {connection.hasToken() && (
        <button type="button" class="button" onClick={() => connection.forgetToken()}>
          Forget token
        </button>
      )}
    </>
  );
}

const THEMES: [Theme, string][] = [
  ["system", "Auto theme"],
  ["light", "Light theme"],
  ["dark", "Dark theme"],
];

function ThemeChoice(): JSX.Element {
  return (
    <select
      class="select"
      aria-label="Colours"
      title="Colours: as the system, light or dark"
      value={theme.value}
      onInput={(event) => chooseTheme(event.currentTarget.value as Theme)}
    >
      {THEMES.map(([value, words]) => (
        <option key={value} value={value}>
          {words}
        </option>
      ))}
    </select>
  );
}
