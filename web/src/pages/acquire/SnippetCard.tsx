// The run of the form as a text for other tools.

import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import type { ArmRequest } from "../../api/client";
import { CopyButton } from "../../app/CopyButton";
import type { Services } from "../../app/services";
import { curlText, pythonText, type Target, tomlText } from "./snippets";

type Language = "Python" | "curl" | "TOML";

/** What each text is, and what it does. */
const LANGUAGES: readonly { language: Language; title: string; use: string }[] = [
  {
    language: "Python",
    title: "A script in Python",
    use: "Arms and starts this run from any program with Python 3; no package is needed.",
  },
  {
    language: "curl",
    title: "A line for a terminal",
    use: "Arms and starts this run; the answer is the state as JSON.",
  },
  {
    language: "TOML",
    title: "Lines for the configuration",
    use: "With these in the configuration of the service, a run is like this one unless its command says otherwise.",
  },
];

export function SnippetCard({ services, request }: { services: Services; request: ArmRequest }): JSX.Element {
  const language = useSignal<Language>("Python");
  const { connection } = services;
  const isOnly = (connection.detectors.value?.length ?? 1) < 2;
  const target: Target = {
    base: document.baseURI,
    verb: "start",
    detector: isOnly ? null : connection.detector.value,
    hasToken: connection.hasToken(),
  };
  const text = textIn(language.value, request, target);
  const shown = LANGUAGES.find((one) => one.language === language.value);
  return (
    <section class="card snippet-card" aria-label="The same run elsewhere">
      <h2>The same run elsewhere</h2>
      <div class="button-row">
        {LANGUAGES.map(({ language: name }) => (
          <button
            key={name}
            type="button"
            class="button"
            aria-pressed={name === language.value}
            onClick={() => {
              language.value = name;
            }}
          >
            {name}
          </button>
        ))}
        <CopyButton text={text} label={`Copy as ${language.value}`} />
      </div>
      {shown && (
        <div>
          <h3>{shown.title}</h3>
          <p class="soft">{shown.use}</p>
        </div>
      )}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what can be scrolled must be reached with the keyboard. */}
      <pre class="snippet" tabIndex={0}>
        {text}
      </pre>
      {target.hasToken && language.value !== "TOML" && (
        <p class="soft">The token is taken from KONKORDIA_TOKEN of the environment.</p>
      )}
    </section>
  );
}

function textIn(language: Language, request: ArmRequest, target: Target): string {
  switch (language) {
    case "Python":
      return pythonText(request, target);
    case "curl":
      return curlText(request, target);
    case "TOML":
      return tomlText(request);
  }
}
