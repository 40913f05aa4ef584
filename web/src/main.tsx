import { render } from "preact";
import { Api, liveUrl, tokensOfTab } from "./api/client";
import { App } from "./app/App";
import { followAddress } from "./app/route";
import { makeServices } from "./app/services";
import { loadTheme } from "./app/theme";
import { LiveConnection } from "./live/connection";
import { keepHistory } from "./pages/performance/history";
import "uplot/dist/uPlot.min.css";
import "./app/theme.css";
import "./app/controls.css";
import "./app/shell.css";
import "./app/pages.css";

function begin(page: HTMLElement): void {
  loadTheme();
  const connection = new LiveConnection({
    url: liveUrl(document.baseURI),
    Socket: WebSocket,
    tokens: tokensOfTab,
    visibility: document,
  });
  const api = new Api({
    base: document.baseURI,
    token: tokensOfTab.read,
    fetch: (url, init) => fetch(url, init),
  });
  keepHistory(connection);
  render(<App services={makeServices(connection, api)} page={followAddress(window)} />, page);
  connection.start();
}

const page = document.getElementById("page");
if (page !== null) begin(page);
