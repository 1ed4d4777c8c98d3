// @ts-check
/** Any metric of a job, of a vertex over its subtasks, or of one subtask: several on one axis, with their numbers. The choice stands in the address. */

import { change } from "../../base/address.js";
import { byteRate, bytes, count, duration, exact, rate, time } from "../../base/format.js";
import { html, useEffect, useMemo, useState } from "../../base/html.js";
import { useConnection, useLive } from "../../base/live.js";
import { Samples } from "../../base/samples.js";
import { Chart, useCrosshair } from "./chart.js";
import { Bound, Card, missing } from "../common.js";
import { Filter, matches } from "../filter.js";

const MOST_CHOSEN = 8;
const MOST_LISTED = 100;
const SHORTEST_S = 60;
const AGGREGATES = /** @type {Record<string, string>} */ ({ max: "highest", min: "lowest", avg: "mean", sum: "sum" });

/**
 * One metric that is collected. `vertex` empty: of the job. `over`: an aggregate over the subtasks, or the number of one.
 * @typedef {{ vertex: string, over: string, metric: string }} Wanted
 */

const keyOf = (/** @type {Wanted} */ one) => `${one.vertex}~${one.over}~${one.metric}`;

/** @returns {Wanted[]} */
function wantedOf(/** @type {string | undefined} */ text) {
  const found = (text ?? "").split("|").map((one) => one.split("~"));
  return found.filter((parts) => parts.length >= 3).map(([vertex, over, ...metric]) => ({ vertex, over, metric: metric.join("~") })).slice(0, MOST_CHOSEN);
}

const choose = (/** @type {Wanted[]} */ all) => change({ collect: all.map(keyOf).join("|") });

/** What is asked of the server for one metric. */
function pathOf(/** @type {string} */ job, /** @type {Wanted} */ { vertex, over, metric }) {
  const get = `get=${encodeURIComponent(metric)}`;
  if (!vertex) return `/jobs/${job}/metrics?${get}`;
  if (over in AGGREGATES) return `/jobs/${job}/vertices/${vertex}/subtasks/metrics?${get}&agg=${over}`;
  return `/jobs/${job}/vertices/${vertex}/subtasks/${over}/metrics?${get}`;
}

/**
 * @param {{ job: string, vertices: { id: string, name: string, parallelism: number }[], query: Record<string, string>, own?: string }} props
 *   `own`: the vertex of this page; "": a page of the job
 */
export function Explorer({ job, vertices, query, own = "" }) {
  const wanted = wantedOf(query.collect);
  return html`
    <${Card} title="Any metric">
      <${Choice} job=${job} vertices=${vertices} query=${query} own=${own} wanted=${wanted} />
      <${Collected} job=${job} vertices=${vertices} wanted=${wanted} />
    <//>
  `;
}

/** The names that there are. */
function Choice({ job, vertices, query, own, wanted }) {
  const of = query.of ?? own;
  const vertex = vertices.find((/** @type {any} */ one) => one.id === of);
  const over = vertex ? (query.over ?? "max") : "";
  const told = useLive(vertex ? `/jobs/${job}/vertices/${vertex.id}/subtasks/metrics` : `/jobs/${job}/metrics`);
  const names = (told?.body ?? []).map((/** @type {any} */ one) => one.id).sort();
  const found = names.filter((/** @type {string} */ one) => matches(query.metric, one));
  const known = new Set(wanted.map(keyOf));
  const isFull = wanted.length >= MOST_CHOSEN;
  return html`
    <div class="row">
      <label class="row">Of
        <select value=${of} onChange=${(/** @type {any} */ event) => change({ of: event.currentTarget.value || (own ? "job" : null) })}>
          <option value=${own ? "job" : ""}>the job</option>
          ${vertices.map((/** @type {any} */ one) => html`<option value=${one.id}>${one.name}</option>`)}
        </select>
      </label>
      ${vertex && html`<${Over} over=${over} parallelism=${vertex.parallelism} />`}
      <${Filter} query=${query} name="metric" label="Filter metrics" shown=${found.length} total=${names.length} />
    </div>
    ${missing(told, "the names of metrics") ??
    html`
      <ul class="metric-names" aria-label="Metrics">
        ${found.slice(0, MOST_LISTED).map((/** @type {string} */ metric) => {
          const one = { vertex: vertex?.id ?? "", over, metric };
          const isChosen = known.has(keyOf(one));
          const toggled = isChosen ? wanted.filter((/** @type {Wanted} */ other) => keyOf(other) !== keyOf(one)) : [...wanted, one];
          return html`<li><button aria-pressed=${isChosen} disabled=${isFull && !isChosen} onClick=${() => choose(toggled)}>${metric}</button></li>`;
        })}
      </ul>
      <${Bound} shown=${Math.min(found.length, MOST_LISTED)} total=${found.length} noun="metrics" why="a filter finds the others" />
      ${names.length === 0 && html`<p class="quiet">No metric has been reported yet.</p>`}
      ${isFull && html`<p class="quiet">At most ${MOST_CHOSEN} metrics at a time.</p>`}
    `}
  `;
}

/** All subtasks of a vertex together, or one of them. */
function Over({ over, parallelism }) {
  const isOne = /^\d+$/.test(over);
  const set = (/** @type {string} */ next) => change({ over: next === "max" ? null : next });
  return html`
    <label class="row">as
      <select value=${isOne ? "one" : over} onChange=${(/** @type {any} */ event) => set(event.currentTarget.value === "one" ? "0" : event.currentTarget.value)}>
        ${Object.entries(AGGREGATES).map(([name, title]) => html`<option value=${name}>${title} of the subtasks</option>`)}
        <option value="one">one subtask</option>
      </select>
    </label>
    ${isOne &&
    html`<label class="row">subtask
      <input type="number" min="0" max=${parallelism - 1} value=${over} onInput=${(/** @type {any} */ event) => event.currentTarget.checkValidity() && set(event.currentTarget.value || "0")} />
    </label>`}
  `;
}

/** The chosen metrics over time, since the page was opened. */
function Collected({ job, vertices, wanted }) {
  const samples = useMemo(() => new Samples(), []);
  const [newest] = useState(() => /** @type {Map<string, string | null>} */ (new Map()));
  const connection = useConnection();
  const crosshair = useCrosshair();
  const [, setRound] = useState(0);
  const keys = wanted.map(keyOf);
  useEffect(() => {
    samples.keep(new Set(keys));
    if (connection.at === 0 || keys.length === 0) return;
    const told = new Map(keys.map((/** @type {string} */ key) => [key, numberOf(newest.get(key))]));
    samples.add(connection.at, told, connection.intervalMs);
    setRound((round) => round + 1);
  }, [connection.at, keys.join("|")]);
  if (wanted.length === 0) return html`<p class="quiet">Choose metrics: they are collected from then on, as long as this page is open.</p>`;
  const formats = new Set(wanted.map((/** @type {Wanted} */ one) => formatOf(one.metric)));
  const format = formats.size === 1 ? [...formats][0] : count;
  const last = samples.times[samples.times.length - 1] ?? Date.now() / 1000;
  const series = wanted.map((/** @type {Wanted} */ one) => ({
    name: titleOf(one, vertices),
    values: samples.values.get(keyOf(one)) ?? [],
    why: newest.get(keyOf(one)) ? `it is ${newest.get(keyOf(one))}, which is no number` : "it is not reported",
  }));
  return html`
    ${wanted.map((/** @type {Wanted} */ one) => html`<${Newest} key=${keyOf(one)} path=${pathOf(job, one)} over=${one.over} take=${(/** @type {string | null} */ value) => newest.set(keyOf(one), value)} />`)}
    <${Chart}
      title="Collected" times=${[...samples.times]} series=${series} format=${format} height=${200}
      span=${[Math.min(samples.times[0] ?? last, last - SHORTEST_S), last]} crosshair=${crosshair} more=${html`<${Chosen} wanted=${wanted} vertices=${vertices} newest=${newest} />`}
    />
    <p class="quiet">
      Collected since ${time(samples.since)}, when this page was opened; the driver keeps no history of single metrics.
      ${formats.size > 1 && " These metrics have several units, so the axis has none."}
    </p>
  `;
}

/** Listens to one metric. It shows nothing. */
function Newest({ path, over, take }) {
  const told = useLive(path);
  const [one] = told?.body ?? [];
  take(one === undefined ? null : String(over in AGGREGATES ? one[over] : one.value));
  return null;
}

/** What is chosen, as it is told, and how it is left out again. */
function Chosen({ wanted, vertices, newest }) {
  return html`
    <ul class="plain chosen" aria-label="Chosen metrics">
      ${wanted.map((/** @type {Wanted} */ one) => {
        const value = newest.get(keyOf(one));
        return html`
          <li>
            <button aria-label=${`Leave out ${titleOf(one, vertices)}`} onClick=${() => choose(wanted.filter((/** @type {Wanted} */ other) => other !== one))}>\u2715</button>
            <span class="quiet">${one.metric}: <code>${value === null || value === undefined ? "not reported" : exactly(value)}</code></span>
          </li>
        `;
      })}
    </ul>
  `;
}

const exactly = (/** @type {string} */ value) => (numberOf(value) === null ? value : exact(Number(value)));

function titleOf(/** @type {Wanted} */ one, /** @type {any[]} */ vertices) {
  if (!one.vertex) return `${one.metric} of the job`;
  const name = vertices.find((vertex) => vertex.id === one.vertex)?.name ?? one.vertex;
  return one.over in AGGREGATES ? `${AGGREGATES[one.over]} ${one.metric} of ${name}` : `${one.metric} of ${name}, subtask ${one.over}`;
}

function numberOf(/** @type {string | null | undefined} */ text) {
  const number = text === null || text === undefined || text.trim() === "" ? NaN : Number(text);
  return Number.isFinite(number) ? number : null;
}

/** The unit that a name tells. Times of Flink's metrics are ms, sizes bytes. */
function formatOf(/** @type {string} */ metric) {
  const name = metric.split(".").pop() ?? metric;
  if (/Bytes.*PerSecond$/.test(name)) return byteRate;
  if (/PerSecond$/.test(name)) return /Ms|Time/.test(name) ? perSecond : rate;
  if (/Bytes|Size$|Memory|Used$|Committed$/.test(name)) return bytes;
  if (/(Time|Lag|Duration|Ms|Latency|Delay|Uptime|Downtime|downtime|uptime)$/.test(name)) return duration;
  return count;
}

/** 980 ms/s: of each second */
const perSecond = (/** @type {number | null} */ value) => (value === null ? "n/a" : `${count(value)} ms/s`);
