// @ts-check
/** Where the tasks of a vertex spend their time: stacks of Python, sampled when somebody looks. Sampling ends by itself. */

import { change } from "../../base/address.js";
import { counted, exact, share } from "../../base/format.js";
import { html, useEffect, useMemo, useState } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { ask, reasonOf } from "../../base/server.js";
import { Card, Moment } from "../../parts/common.js";
import { Flame } from "../../parts/flame/flame.js";
import { FlameTable, told } from "../../parts/flame/flame_table.js";
import { frameAt, framesOf, samplesWith } from "../../parts/flame/flame_tree.js";
import { VertexFrame } from "./frame.js";

const TYPES = [
  ["full", "all"],
  ["on_cpu", "on a processor"],
  ["off_cpu", "waiting"],
];
const NO_SAMPLE_YET = -3;
const AGAIN_MS = 1000;
const MOST_ASKED = 60;

/** @param {{ job: string, vertex: string, query: Record<string, string>, config: any }} props */
export function Page({ job, vertex, query, config }) {
  return html`
    <${VertexFrame} job=${job} vertex=${vertex} tab="flamegraph" config=${config}>
      ${config.features?.["web-history"]
        ? html`<p class="banner">An archive has no flame graph: one is made of tasks while they run.</p>`
        : html`<${Sampled} job=${job} vertex=${vertex} query=${query} />`}
    <//>
  `;
}

/** @typedef {{ at: number, tree: import("../../parts/flame/flame_tree.js").Tree | null, error: string, isComing: boolean }} Samples */

/**
 * Ask until there are samples; `round`: ask until there are newer ones. Old ones stay meanwhile.
 * @param {string} path
 * @param {number} round
 * @returns {Samples}
 */
function useSamples(path, round) {
  const [samples, setSamples] = useState(/** @type {Samples} */ ({ at: 0, tree: null, error: "", isComing: true }));
  useEffect(() => {
    const control = new AbortController();
    const former = round > 0 ? samples.at : 0;
    const work = async () => {
      setSamples((known) => ({ ...known, error: "", isComing: true }));
      for (let asked = 0; asked < MOST_ASKED; asked++) {
        const { endTimestamp: at, data } = await ask(path, { signal: control.signal });
        const isNew = at !== NO_SAMPLE_YET && at > former;
        const isOver = at !== NO_SAMPLE_YET && at < 0;
        if (isOver) return setSamples((known) => ({ ...known, isComing: false, error: "No subtask of it runs, so there is nothing to sample." }));
        if (data) setSamples({ at, tree: data, error: "", isComing: !isNew });
        if (isNew) return;
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
      const text = round > 0 ? "No newer samples have come: the TaskManagers take new ones once in rest.flamegraph.refresh-interval (1 min)." : "No samples have come. Look into the logs of the TaskManagers.";
      setSamples((known) => ({ ...known, isComing: false, error: text }));
    };
    work().catch((error) => control.signal.aborted || setSamples((known) => ({ ...known, isComing: false, error: reasonOf(error) })));
    return () => control.abort();
  }, [path, round]);
  return samples;
}

function Sampled({ job, vertex, query }) {
  const [round, setRound] = useState(0);
  const type = TYPES.some(([name]) => name === query.type) ? query.type : "full";
  const asked = new URLSearchParams({ type });
  if (query.subtask) asked.set("subtaskindex", query.subtask);
  const { at, tree, error, isComing } = useSamples(`/jobs/${job}/vertices/${vertex}/flamegraph?${asked}`, round);
  const frames = useMemo(() => (tree ? framesOf(tree) : null), [tree]);
  const more = html`
    <span role="status" aria-busy=${isComing}>
      ${isComing && html`<span class="spin" aria-hidden="true">\u25d4</span> sampling\u2026 `}
      ${frames && html`<span class="quiet">${counted(frames[0].value, "sample")}, until <${Moment} at=${at} /></span>`}
    </span>
    <button disabled=${isComing} onClick=${() => setRound(round + 1)}>Sample again</button>
  `;
  return html`
    <${Card} title="Where the time goes" more=${more}>
      <${Choices} job=${job} vertex=${vertex} type=${type} query=${query} />
      ${error && html`<p class="bad-text" role="alert">${error}</p>`}
      ${!frames && isComing && html`<p class="quiet">Each task is looked at 100 times, 50 ms apart. This takes some seconds, and costs the tasks almost nothing.</p>`}
      ${frames && frames[0].value === 0 && html`<p class="quiet">None of the samples is of this kind.</p>`}
      ${frames && frames[0].value > 0 && html`<${Graph} frames=${frames} query=${query} />`}
    <//>
  `;
}

function Choices({ job, vertex, type, query }) {
  const told = useLive(`/jobs/${job}`);
  const known = told?.body?.vertices.find((/** @type {any} */ one) => one.id === vertex);
  const set = (/** @type {string} */ name) => (/** @type {any} */ event) => change({ [name]: event.currentTarget.value, zoom: null });
  return html`
    <div class="row">
      <label class="row">
        Samples
        <select value=${type} onChange=${set("type")}>${TYPES.map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select>
      </label>
      <label class="row">
        Subtask
        <input
          class="small" type="number" min="0" max=${(known?.parallelism ?? 1) - 1} placeholder="all" value=${query.subtask ?? ""}
          onChange=${set("subtask")}
        />
      </label>
      <label class="row">Search <input type="search" value=${query.q ?? ""} onInput=${(/** @type {any} */ event) => change({ q: event.currentTarget.value })} /></label>
    </div>
  `;
}

function Graph({ frames, query }) {
  const [seen, setSeen] = useState(/** @type {import("../../parts/flame/flame_tree.js").Frame | null} */ (null));
  const [root] = frames;
  const zoomed = frameAt(frames, query.zoom);
  const text = (query.q ?? "").toLowerCase();
  const hits = useMemo(() => (text ? samplesWith(root, text) : 0), [root, text]);
  const zoom = (/** @type {import("../../parts/flame/flame_tree.js").Frame} */ one) => change({ zoom: one.depth === 0 ? null : one.key }, { isStep: true });
  return html`
    <div class="row">
      ${text && html`<span role="status"><b>${share(hits / root.value)}</b> of the samples have it, ${exact(hits)} of ${exact(root.value)}</span>`}
      ${zoomed !== root && html`<button onClick=${() => zoom(root)}>Show all samples</button>`}
      <span class="quiet row"><span><i class="frame-sign program"></i> program and libraries</span><span><i class="frame-sign own"></i> penstock</span></span>
    </div>
    <${Flame} frames=${frames} zoomed=${zoomed} text=${text} zoom=${zoom} see=${setSeen} />
    <p class="flame-told">${told(seen ?? zoomed)}</p>
    <details>
      <summary>The same as a table</summary>
      <${FlameTable} frames=${frames} zoom=${zoom} />
    </details>
  `;
}
