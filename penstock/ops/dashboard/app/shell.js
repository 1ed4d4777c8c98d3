// @ts-check
/** The frame of all pages: where one is, how fresh the numbers are, and what is wrong with the connection. */

import { to, useAddress } from "./base/address.js";
import { duration, time, utc } from "./base/format.js";
import { html, useEffect, useErrorBoundary, useLayoutEffect, useState } from "./base/html.js";
import { INTERVALS_MS, pause, resume, setIntervalMs, useConnection, usually } from "./base/live.js";
import { ask, rememberToken } from "./base/server.js";
import { pageOf } from "./pages/index.js";
import { Switches } from "./parts/switches.js";

/** @param {{ isArchive: boolean }} props */
export function Shell({ isArchive }) {
  const config = useConfig(isArchive);
  const address = useAddress();
  const page = pageOf(address);
  return html`
    <a class="to-content" href="#content" onClick=${toContent}>To the content</a>
    <header class="top">
      <a class="brand" href=${to([])}><img src="/dashboard/icon.svg" alt="" />Penstock</a>
      <nav aria-label="Driver">
        <${Places} chosen=${address.path[0] ?? ""} />
      </nav>
      <span class="space"></span>
      <${Clock} usualMs=${config["refresh-interval"]} />
      <${Theme} />
    </header>
    <${Lost} />
    <${Switches} config=${config} />
    <main id="content" tabindex="-1">
      <${Page} key=${page.key} page=${page} config=${config} query=${address.query} />
    </main>
  `;
}

/** What the server may do. Until it has said so, nothing is offered. */
function useConfig(/** @type {boolean} */ isArchive) {
  const [config, setConfig] = useState(/** @type {Record<string, any>} */ ({ features: { "web-history": isArchive } }));
  const { state } = useConnection();
  const isKnown = "refresh-interval" in config;
  useEffect(() => {
    if (isKnown || state === "lost") return;
    ask("/config").then(
      (told) => {
        usually(told["refresh-interval"]);
        setConfig(told);
      },
      () => {}, // The frame says that nobody answers, and asks again when somebody does.
    );
  }, [isKnown, state === "lost"]);
  return config;
}

function toContent(/** @type {Event} */ event) {
  event.preventDefault();
  document.getElementById("content")?.focus();
}

const PLACES = [
  ["", "Overview"],
  ["taskmanagers", "TaskManagers"],
  ["driver", "Driver"],
];

function Places({ chosen = "" }) {
  const known = chosen === "jobs" ? "" : chosen;
  return PLACES.map(
    ([name, title]) => html`
      <a class="tab" href=${to(name ? [name] : [])} aria-current=${name === known ? "page" : null}>${title}</a>
    `,
  );
}

/** A page is loaded when it is first shown. A fault of one page leaves the frame as it is. */
function Page({ page, config, query }) {
  const [view, setView] = useState(() => page.view);
  const [error, again] = useErrorBoundary((seen) => console.error(seen));
  useEffect(() => {
    if (view !== null) return;
    let isShown = true;
    page.load().then((/** @type {any} */ loaded) => isShown && setView(() => loaded));
    return () => {
      isShown = false;
    };
  }, [page.name]);
  useLayoutEffect(() => {
    document.title = `${page.title} \u00b7 Penstock`;
  }, [page.title]);
  if (error) {
    return html`<p class="banner bad" role="alert">
      This page has a fault: ${error.message} <button onClick=${again}>Show it again</button>
    </p>`;
  }
  return view === null ? null : html`<${view} ...${page.parameters} query=${query} config=${config} />`;
}

const SIGNS = { live: "\u25cf", connecting: "\u25cc", paused: "\u2016", lost: "\u2715", refused: "\u2715", archive: "\u25a0" };

/** How old the numbers are, and how often they come. */
function Clock({ usualMs = 0 }) {
  const connection = useConnection();
  const now = useNow(1000);
  if (connection.state === "archive") return html`<span class="clock">archive of jobs that have ended</span>`;
  const isPaused = connection.state === "paused";
  const seconds = Math.floor((now - connection.at) / 1000);
  const since = seconds < 1 ? "just now" : `${duration(seconds * 1000).replace(".0", "")} ago`;
  const age = connection.at ? `updated ${since}` : "not yet updated";
  return html`
    <span class="clock" data-state=${connection.state}>
      <span aria-hidden="true">${SIGNS[connection.state]}</span>
      <span title=${utc(connection.at)}>${isPaused ? `paused at ${time(connection.since)}` : age}</span>
      <select
        aria-label="Time between updates"
        value=${String(connection.intervalMs)}
        onChange=${(/** @type {any} */ event) => setIntervalMs(Number(event.currentTarget.value))}
      >
        ${intervals(usualMs, connection.intervalMs).map((ms) => html`<option value=${String(ms)}>${ms / 1000} s</option>`)}
      </select>
      <button onClick=${isPaused ? resume : pause}>${isPaused ? "Go on" : "Pause"}</button>
    </span>
  `;
}

/** The times that can be chosen: the usual ones, and the one that the driver's `web.refresh-interval` says. */
function intervals(/** @type {number} */ usualMs, /** @type {number} */ chosenMs) {
  const offered = new Set([...INTERVALS_MS, chosenMs]);
  if (usualMs) offered.add(usualMs);
  return [...offered].sort((one, other) => one - other);
}

/** The moment, as often as is said. */
export function useNow(/** @type {number} */ everyMs) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

function Theme() {
  const [theme, setTheme] = useState(localStorage.getItem("penstock.theme") ?? "");
  const choose = (/** @type {string} */ chosen) => {
    setTheme(chosen);
    if (chosen) {
      localStorage.setItem("penstock.theme", chosen);
      document.documentElement.dataset.theme = chosen;
    } else {
      localStorage.removeItem("penstock.theme");
      delete document.documentElement.dataset.theme;
    }
  };
  return html`
    <select aria-label="Colours" value=${theme} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
      <option value="">as the system</option>
      <option value="light">light</option>
      <option value="dark">dark</option>
    </select>
  `;
}

/** What is wrong with the connection, and what happens next. What was told before stays on the page. */
function Lost() {
  const connection = useConnection();
  const now = useNow(1000);
  if (connection.state === "refused") return html`<${Token} />`;
  if (connection.state !== "lost") return null;
  const wait = Math.max(0, Math.ceil((connection.retryAt - now) / 1000));
  return html`
    <p class="banner bad row" role="alert">
      <span>
        The driver has not answered since ${time(connection.since)}. It may have ended. The page shows what was known
        ${connection.at ? ` at ${time(connection.at)}` : ""}.
      </span>
      <span>${wait ? `Next try in ${wait} s.` : "Trying again."}</span>
      <button onClick=${resume}>Try now</button>
    </p>
  `;
}

/** Other machines may reach this server, so it wants to know who asks. */
function Token() {
  const [token, setToken] = useState("");
  const send = (/** @type {Event} */ event) => {
    event.preventDefault();
    rememberToken(token);
    location.reload();
  };
  return html`
    <form class="banner row" onSubmit=${send}>
      <label class="row">
        This driver asks for its token. Its user finds it with <code>penstock list --show-token</code>.
        <input type="password" autocomplete="off" value=${token} onInput=${(/** @type {any} */ event) => setToken(event.currentTarget.value)} />
      </label>
      <button class="main">Show the jobs</button>
    </form>
  `;
}
