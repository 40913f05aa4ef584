// The frame around every page. Only the page that is shown exists, so that the others cost nothing.

import type { ReadonlySignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { AcquirePage } from "../pages/acquire";
import { CalibrationPage } from "../pages/calibration";
import { FilesPage } from "../pages/files";
import { LivePage } from "../pages/live";
import { LogsPage } from "../pages/logs";
import { PerformancePage } from "../pages/performance";
import { Bar } from "./Bar";
import { Header } from "./Header";
import { Login } from "./Login";
import { PAGES, type PageId } from "./route";
import { ContactStrip, ProblemStrips } from "./Strips";
import { isCurrent, type Services } from "./services";

interface AppProps {
  services: Services;
  page: ReadonlySignal<PageId>;
}

export function App({ services, page }: AppProps): JSX.Element {
  const { connection } = services;
  const contact = connection.contact.value;
  const shown = page.value;
  useEffect(() => {
    const name = PAGES.find(({ id }) => id === shown)?.name;
    document.title = name ? `${name} – Konkordia` : "Konkordia";
  }, [shown]);
  if (contact.kind === "token") return <Login services={services} refused={contact.problem} />;
  return (
    <div class="frame">
      <button type="button" class="skip" onClick={() => document.getElementById("content")?.focus()}>
        Skip to the page
      </button>
      <Header services={services} page={shown} />
      <Bar services={services} />
      <ContactStrip services={services} />
      <ProblemStrips services={services} />
      <main id="content" tabIndex={-1} class={isCurrent(connection) ? `page ${shown}` : `page ${shown} old`}>
        <Page id={shown} services={services} />
      </main>
    </div>
  );
}

function Page({ id, services }: { id: PageId; services: Services }): JSX.Element {
  switch (id) {
    case "live":
      return <LivePage services={services} />;
    case "acquire":
      return <AcquirePage services={services} />;
    case "calibration":
      return <CalibrationPage services={services} />;
    case "performance":
      return <PerformancePage services={services} />;
    case "files":
      return <FilesPage services={services} />;
    case "logs":
      return <LogsPage services={services} />;
  }
}
