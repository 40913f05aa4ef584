// Asks for a token, where the service needs one.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Problem } from "../live/types";
import { SeverityWord } from "./Shapes";
import type { Services } from "./services";

export function Login({ services, refused }: { services: Services; refused: Problem | null }): JSX.Element {
  const [token, setToken] = useState("");
  const send = (event: Event): void => {
    event.preventDefault();
    if (token.trim() !== "") services.connection.useToken(token.trim());
  };
  return (
    <main class="login" id="content">
      <form class="card" onSubmit={send}>
        <h1>Konkordia</h1>
        <p>This service answers to those who have a token.</p>
        {refused && (
          <div class="strip error" role="alert">
            <div class="strip-text">
              <SeverityWord severity="error" word="The token was refused:" /> {refused.detail}
              {refused.hint && <p>{refused.hint}</p>}
            </div>
          </div>
        )}
        <div class="field">
          <label for="token">Token</label>
          <input
            id="token"
            type="password"
            autocomplete="off"
            value={token}
            aria-describedby="token-note"
            onInput={(event) => setToken(event.currentTarget.value)}
          />
          <span class="note" id="token-note">
            It is kept in this tab only, and forgotten when the tab is closed.
          </span>
        </div>
        <div class="button-row">
          <button type="submit" class="button primary" disabled={token.trim() === ""}>
            Enter
          </button>
        </div>
        <h2>Where do I get one?</h2>
        <p>Whoever runs the service makes it, on its machine:</p>
        <pre class="snippet">konkordia token create NAME --role view --file TOKENS</pre>
        <p>
          TOKENS is the file of <code>[service] tokens</code> in the configuration. With <code>--role operate</code> one
          may also arm, start, stop and cancel. The token is printed once.
        </p>
      </form>
    </main>
  );
}
