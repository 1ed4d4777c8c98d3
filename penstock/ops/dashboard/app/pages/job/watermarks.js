// @ts-check
/** The watermarks of all vertices of a job at once: the lowest, the highest, who is left out, and who holds each. */

import { to } from "../../base/address.js";
import { counted, duration, exact, UNKNOWN } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Card, missing, Moment } from "../../parts/common.js";
import { Table } from "../../parts/table.js";
import { JobFrame } from "./frame.js";

export function Page({ job, config }) {
  return html`
    <${JobFrame} job=${job} tab="watermarks" config=${config}>
      ${config.features?.["web-history"]
        ? html`<p class="banner">An archive has no watermarks: they are of a moment. <a href=${to(["jobs", job, "metrics"])}>Their lag over time</a></p>`
        : html`<${Holder} job=${job} /><${Vertices} job=${job} />`}
    <//>
  `;
}

/** What the whole job waits for, as the verdict has found it. */
function Holder({ job }) {
  const told = useLive(`/jobs/${job}/bottleneck`);
  const holder = told?.body?.watermark;
  if (!holder) return null;
  const lag = holder.lag === null ? "it has no watermark yet" : `${duration(holder.lag)} behind the clock`;
  return html`
    <${Card} title=${holder.held ? "The watermark is held" : "The lowest watermark"}>
      <p>
        <${Place} job=${job} place=${holder} />: ${lag}${holder.behind !== null && holder.held ? `, ${duration(holder.behind)} of event time behind the furthest` : ""}.
        ${holder.held && holder.since > 0 && html` It has stood there since <${Moment} at=${holder.since} />.`}
      </p>
      ${holder.held && holder.consumer && html`<p class="quiet">'${holder.consumer}' waits for it.</p>`}
    <//>
  `;
}

/** A subtask, with its split where it is known. */
function Place({ job, place }) {
  const subtask = html`<a href=${to(["jobs", job, "vertices", place["vertex-id"]])}>subtask ${place.subtask} of ${place["vertex-name"]}</a>`;
  return place.split ? html`split <code>${place.split}</code> of ${subtask}` : subtask;
}

function Vertices({ job }) {
  const told = useLive(`/jobs/${job}/watermarks`);
  const absent = missing(told, "the watermarks");
  if (absent || !told) return absent;
  const rows = told.body.vertices;
  const hasNone = rows.every((/** @type {any} */ one) => one.lowest === null);
  return html`
    <${Card} title="Watermarks of the vertices">
      ${hasNone && html`<p class="quiet">No subtask of this job has a watermark: ${rows[0]?.why ?? "it has no vertex"}. A job without event time has none.</p>`}
      <${Table} caption="Watermarks of the vertices" columns=${columnsOf(job)} rows=${rows} keyOf=${(row) => row.id} />
      <p class="quiet">The watermark of a source is what it sends; that of another vertex is what it got. Lag: how far the lowest one is behind the clock now.</p>
    <//>
  `;
}

const unknown = (/** @type {any} */ row) => html`<span class="quiet" title=${row.why}>${UNKNOWN}</span>`;

const columnsOf = (/** @type {string} */ job) => [
  { title: "Vertex", isName: true, cell: (row) => html`<a href=${to(["jobs", job, "vertices", row.id])}>${row.name}</a>${row.source && html` <span class="quiet">source</span>`}` },
  { title: "Lag", isNumber: true, hint: "of the lowest watermark, behind the clock", value: (row) => row.lowest?.lag, cell: (row) => (row.lowest ? duration(row.lowest.lag) : unknown(row)) },
  { title: "Lowest", value: (row) => row.lowest?.watermark, cell: (row) => extreme(row.lowest, row) },
  { title: "Highest", value: (row) => row.highest?.watermark, cell: (row) => extreme(row.highest, row) },
  { title: "Apart", isNumber: true, hint: "from the lowest to the highest, in event time", value: (row) => apart(row), cell: (row) => (row.lowest ? duration(apart(row)) : unknown(row)) },
  { title: "Held by", cell: (row) => held(job, row) },
  { title: "Idle channels", isNumber: true, hint: "channels whose sender stands behind: the vertex does not wait for it", value: (row) => row.idle.count, cell: idle },
  { title: "Subtasks without", isNumber: true, hint: "have no watermark yet", value: (row) => row.without, cell: (row) => `${exact(row.without)} of ${exact(row.subtasks)}` },
  { title: "Ended", isNumber: true, hint: "have got the last watermark", value: (row) => row.ended, cell: (row) => exact(row.ended) },
];

const apart = (/** @type {any} */ row) => (row.lowest ? row.highest.watermark - row.lowest.watermark : null);

function extreme(/** @type {any} */ found, /** @type {any} */ row) {
  if (!found) return unknown(row);
  return html`<${Moment} at=${found.watermark} /> <span class="quiet">subtask ${found.subtask}</span>`;
}

function held(/** @type {string} */ job, /** @type {any} */ row) {
  if (!row.holder) return html`<span class="quiet">nobody</span>`;
  return html`<${Place} job=${job} place=${row.holder} />`;
}

function idle(/** @type {any} */ row) {
  if (row.source) return html`<span class="quiet" title="a source has no channels">${UNKNOWN}</span>`;
  const { count, subtasks } = row.idle;
  const named = subtasks.map((/** @type {any} */ one) => `subtask ${one.subtask} of ${one["vertex-name"]}`).join(", ");
  return html`<span title=${count ? `${named}${count > subtasks.length ? ` and ${counted(count - subtasks.length, "other")}` : ""}` : undefined}>${exact(count)} of ${exact(row.channels)}</span>`;
}
