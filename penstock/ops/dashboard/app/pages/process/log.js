// @ts-check
/** Log files of a process: the end first, older parts on demand; with follow, search, levels and the way from error to error. */

import { change } from "../../base/address.js";
import { bytes, counted, exact } from "../../base/format.js";
import { html, useEffect, useMemo, useReducer, useRef, useState } from "../../base/html.js";
import { useConnection } from "../../base/live.js";
import { ask, reasonOf } from "../../base/server.js";
import { Moment } from "../../parts/common.js";
import { LogFile } from "../../parts/logs/log_file.js";
import { LogView } from "../../parts/logs/log_view.js";
import { isArchive, NotOfArchive, placeOf, ProcessFrame } from "./frame.js";

const LEVELS = /** @type {Record<string, string[]>} */ ({
  warnings: ["WARNING", "ERROR", "CRITICAL"],
  errors: ["ERROR", "CRITICAL"],
});

/** @typedef {{ name: string, size: number, mtime: number }} File */

/** @param {{ taskmanager?: string, query: Record<string, string>, config: any }} props */
export function Page({ taskmanager, query, config }) {
  if (isArchive(config)) return html`<${NotOfArchive} />`;
  return html`<${ProcessFrame} taskmanager=${taskmanager} tab="log"><${Files} place=${placeOf(taskmanager)} query=${query} /><//>`;
}

function Files({ place, query }) {
  const [files, setFiles] = useState(/** @type {File[] | null} */ (null));
  const [error, setError] = useState("");
  const look = async () => {
    const found = (await ask(`${place.path}/logs`)).logs;
    setFiles(found);
    setError("");
    return /** @type {File[]} */ (found);
  };
  useEffect(() => void look().catch((failure) => setError(reasonOf(failure))), [place.path]);
  if (files === null) {
    return error
      ? html`<p class="bad-text" role="alert">${error}</p>`
      : html`<p class="quiet" aria-busy="true">Asking for the log files of the ${place.noun}\u2026</p>`;
  }
  if (files.length === 0) return html`<p class="quiet">This ${place.noun} writes no log files.</p>`;
  const name = query.file ?? "";
  const isEmpty = files.every((one) => one.size === 0) || files.find((one) => one.name === name)?.size === 0;
  const url = name ? `${place.path}/logs/${encodeURIComponent(name)}` : `${place.path}/log`;
  return html`
    ${error && html`<p class="banner bad" role="alert">${error}</p>`}
    <div class="row">
      <label class="row">File <${Choice} files=${files} name=${name} /></label>
      ${isEmpty && html`<span class="quiet">The file is empty.</span>`}
    </div>
    ${!isEmpty && html`<${Viewer} key=${url} url=${url} files=${files} look=${look} query=${query} fail=${setError} />`}
  `;
}

function Choice({ files, name }) {
  const chosen = (/** @type {any} */ event) => change({ file: event.currentTarget.value }, { isStep: true });
  return html`
    <select value=${name} onChange=${chosen}>
      <option value="">the log that is being written</option>
      ${files.map((/** @type {File} */ one) => html`<option value=${one.name}>${one.name} (${bytes(one.size)})</option>`)}
    </select>
  `;
}

/** The file, and what is done with it. A step that fails is told, and the lines that are there stay. */
function useLog({ url, look, fail }) {
  const [, draw] = useReducer((/** @type {number} */ round) => round + 1, 0);
  const file = useMemo(() => new LogFile(url), [url]);
  const [isBusy, setBusy] = useState(true);
  const running = useRef(false);
  const control = useMemo(() => new AbortController(), [url]);
  const step = async (/** @type {(signal: AbortSignal) => Promise<any>} */ work) => {
    if (running.current) return;
    running.current = true;
    setBusy(true);
    try {
      await work(control.signal);
    } catch (error) {
      if (!control.signal.aborted) fail(reasonOf(error));
    } finally {
      running.current = false;
      if (!control.signal.aborted) {
        setBusy(false);
        draw(0);
      }
    }
  };
  useEffect(() => {
    void step((signal) => file.loadEnd(signal));
    return () => control.abort();
  }, [url]);
  const loadNewer = async (/** @type {AbortSignal} */ signal) => {
    const size = (await look()).find((/** @type {File} */ one) => one.name === file.name)?.size;
    if (size !== undefined) await file.loadNewer(size, signal);
  };
  return { file, isBusy, step, loadNewer };
}

/** Ask for what came since, as often as the live numbers come. */
function useFollow(/** @type {boolean} */ isOn, /** @type {() => void} */ tick) {
  const { intervalMs, state } = useConnection();
  const newest = useRef(tick);
  newest.current = tick;
  useEffect(() => {
    if (!isOn || state === "paused") return;
    const timer = setInterval(() => document.hidden || newest.current(), intervalMs);
    return () => clearInterval(timer);
  }, [isOn, intervalMs, state === "paused"]);
}

function Viewer({ url, files, look, query, fail }) {
  const { file, isBusy, step, loadNewer } = useLog({ url, look, fail });
  const [isAtEnd, setAtEnd] = useState(true);
  const [chosen, setChosen] = useState(/** @type {number | null} */ (null));
  const follows = query.follow !== "no";
  useFollow(follows && file.hasEnd, () => void step(loadNewer));
  const all = file.lines();
  const wanted = LEVELS[query.level ?? ""];
  const lines = useMemo(() => (wanted ? all.filter((one) => wanted.includes(one.level)) : all), [all, query.level]);
  const text = (query.q ?? "").toLowerCase();
  const hits = useMemo(() => (text ? lines.filter((one) => one.text.toLowerCase().includes(text)) : []), [lines, text]);
  const errors = useMemo(() => lines.filter((one) => one.isFirst && LEVELS.errors.includes(one.level)), [lines]);
  const jump = (/** @type {import("../../parts/logs/log_file.js").Line[]} */ among, /** @type {number} */ way) => {
    const next = nextOf(among, chosen, way);
    setAtEnd(false);
    if (next) setChosen(next.key);
  };
  const findOlder = async (/** @type {AbortSignal} */ signal) => {
    for (let isFound = false; !isFound && file.begin > 0; ) {
      const former = file.begin;
      await file.loadOlder(signal);
      isFound = file.pieces[0].lines.some((one) => one.toLowerCase().includes(text)) || file.begin === former;
    }
  };
  return html`
    <${Tools} query=${query} text=${text} hits=${hits.length} errors=${errors.length}
      toHit=${(/** @type {number} */ way) => jump(hits, way)} toError=${(/** @type {number} */ way) => jump(errors, way)}
      findOlder=${file.begin > 0 && text ? () => void step(findOlder) : null} />
    <${Extent} file=${file} files=${files} isBusy=${isBusy} shown=${lines.length} all=${all.length}
      loadOlder=${() => void step((signal) => file.loadOlder(signal))}
      toEnd=${() => void step((signal) => file.loadEnd(signal)).then(() => setAtEnd(true))} />
    ${all.length > 0 && html`<${LogView} lines=${lines} chosen=${chosen} query=${text} isAtEnd=${follows && isAtEnd} label="Lines of the log" onScroll=${setAtEnd} />`}
  `;
}

/**
 * The next one that is meant, after the line that is chosen. Without one: the newest.
 * @param {import("../../parts/logs/log_file.js").Line[]} among
 * @param {number | null} chosen
 * @param {number} way 1: towards the end
 */
function nextOf(among, chosen, way) {
  if (chosen === null) return among[among.length - 1];
  const further = among.filter((one) => (way > 0 ? one.key > chosen : one.key < chosen));
  return way > 0 ? further[0] : further[further.length - 1];
}

function Tools({ query, text, hits, errors, toHit, toError, findOlder }) {
  const typed = (/** @type {any} */ event) => change({ q: event.currentTarget.value });
  const entered = (/** @type {KeyboardEvent} */ event) => event.key === "Enter" && toHit(event.shiftKey ? 1 : -1);
  return html`
    <div class="row" role="search">
      <label class="row">Search <input type="search" value=${query.q ?? ""} onInput=${typed} onKeyDown=${entered} /></label>
      ${text && html`<span role="status">${counted(hits, "line")} found</span>`}
      ${text && html`<${Ways} noun="hit" count=${hits} jump=${toHit} />`}
      ${findOlder && html`<button onClick=${findOlder}>Search older lines</button>`}
      <label class="row">
        Level
        <select value=${query.level ?? ""} onChange=${(/** @type {any} */ event) => change({ level: event.currentTarget.value })}>
          <option value="">all</option>
          <option value="warnings">warnings and errors</option>
          <option value="errors">errors</option>
        </select>
      </label>
      <span>${counted(errors, "error")}</span>
      <${Ways} noun="error" count=${errors} jump=${toError} />
      <label class="row">
        <input type="checkbox" checked=${query.follow !== "no"} onChange=${(/** @type {any} */ event) => change({ follow: event.currentTarget.checked ? null : "no" })} />
        Follow
      </label>
    </div>
  `;
}

function Ways({ noun, count, jump }) {
  return html`
    <span class="ways">
      <button disabled=${count === 0} onClick=${() => jump(-1)} aria-label="Former ${noun}" title="Former ${noun}">\u2191</button>
      <button disabled=${count === 0} onClick=${() => jump(1)} aria-label="Next ${noun}" title="Next ${noun}">\u2193</button>
    </span>
  `;
}

/** Which part of the file is here, and how to get more of it. */
function Extent({ file, files, isBusy, shown, all, loadOlder, toEnd }) {
  const own = files.find((/** @type {File} */ one) => one.name === file.name);
  return html`
    <div class="row quiet">
      ${file.begin > 0
        ? html`<button onClick=${loadOlder} disabled=${isBusy}>Load older lines</button>`
        : all > 0 && html`<span><${Begin} name=${file.name} files=${files} /></span>`}
      <span aria-busy=${isBusy}>
        ${all === 0 && isBusy ? "Asking for the end of the file\u2026" : `${exact(shown)}${shown < all ? ` of ${exact(all)}` : ""} lines, ${bytes(file.loaded())} of ${bytes(file.total)}`}
      </span>
      ${own && html`<span>last written <${Moment} at=${own.mtime} /></span>`}
      ${!file.hasEnd && html`<button onClick=${toEnd} disabled=${isBusy}>To the end of the file</button>`}
    </div>
  `;
}

/** What stands before the begin of a file: older lines are in other files, or are gone. */
function Begin({ name, files }) {
  if (name === "last-lines.log") return "This is what is left of the log: its last lines.";
  const [stem, number] = /^(.*?)(?:\.(\d+))?$/.exec(name)?.slice(1) ?? [name, undefined];
  const older = `${stem}.${Number(number ?? 0) + 1}`;
  if (!files.some((/** @type {File} */ one) => one.name === older)) return number ? "The file begins here. Older lines are gone." : "The file begins here.";
  return html`The file begins here. Older lines: <a href="#" onClick=${(/** @type {Event} */ event) => {
    event.preventDefault();
    change({ file: older }, { isStep: true });
  }}>${older}</a>`;
}
