// @ts-check
/** What every thread of a process does at one moment. */

import { change } from "../../base/address.js";
import { counted, exact } from "../../base/format.js";
import { html, useEffect, useMemo, useState } from "../../base/html.js";
import { ask, reasonOf } from "../../base/server.js";
import { Moment } from "../../parts/common.js";
import { isArchive, NotOfArchive, placeOf, ProcessFrame } from "./frame.js";

/** @typedef {{ threadName: string, stringifiedThreadInfo: string }} Thread */

/** @param {{ taskmanager?: string, query: Record<string, string>, config: any }} props */
export function Page({ taskmanager, query, config }) {
  if (isArchive(config)) return html`<${NotOfArchive} />`;
  return html`<${ProcessFrame} taskmanager=${taskmanager} tab="threads"><${Dump} place=${placeOf(taskmanager)} query=${query} /><//>`;
}

function Dump({ place, query }) {
  const [told, setTold] = useState(/** @type {{ threads: Thread[], at: number } | null} */ (null));
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const look = async () => {
    setBusy(true);
    try {
      setTold({ threads: (await ask(`${place.path}/thread-dump`)).threadInfos, at: Date.now() });
      setError("");
    } catch (failure) {
      setError(reasonOf(failure));
    }
    setBusy(false);
  };
  useEffect(() => void look(), [place.path]);
  const text = (query.q ?? "").toLowerCase();
  const shown = useMemo(() => (told?.threads ?? []).filter((one) => one.stringifiedThreadInfo.toLowerCase().includes(text)), [told, text]);
  return html`
    ${error && html`<p class="banner bad" role="alert">${error}</p>`}
    <div class="row" role="search">
      <label class="row">
        Show threads with <input type="search" value=${query.q ?? ""} onInput=${(/** @type {any} */ event) => change({ q: event.currentTarget.value })} />
      </label>
      <span role="status">
        ${told === null ? (isBusy ? `Asking the ${place.noun} for its threads\u2026` : "") : `${exact(shown.length)} of ${counted(told.threads.length, "thread")}`}
      </span>
      ${told && html`<span class="quiet">taken at <${Moment} at=${told.at} /></span>`}
      <button onClick=${look} disabled=${isBusy}>Look again</button>
    </div>
    ${shown.map((one) => html`<${One} key=${one.threadName + one.stringifiedThreadInfo.length} thread=${one} isOpen=${shown.length <= 5} />`)}
  `;
}

/** @param {{ thread: Thread, isOpen: boolean }} props */
function One({ thread, isOpen }) {
  const lines = thread.stringifiedThreadInfo.trimEnd().split("\n");
  const innermost = lines.find((one) => one.trimStart().startsWith("at "))?.trim() ?? "";
  return html`
    <details class="thread card" open=${isOpen}>
      <summary><b>${thread.threadName}</b> <code class="quiet">${innermost}</code></summary>
      <pre>${lines.join("\n")}</pre>
    </details>
  `;
}
