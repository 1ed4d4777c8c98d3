// @ts-check
/** The subtasks of a vertex as a table: sorted and cut into pages by the server, with the spread of each figure above. */

import { change, to } from "../../base/address.js";
import { byteRate, bytes, count, duration, exact, rate, share } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Card, missing, Over, Share, SHARES_OVER, State } from "../../parts/common.js";
import { pageOf, Pages } from "../../parts/pages.js";
import { Stage } from "../../parts/stages.js";
import { archivedTable } from "../../parts/subtask_rows.js";
import { Subtask } from "../../parts/subtask.js";
import { Table } from "../../parts/table.js";
import { isOfBatch, VertexFrame } from "./frame.js";

export const OF_A_PAGE = 50;

/** @typedef {{ title: string, name: string, cell: (one: any, body: any) => any, isNumber?: boolean, isOfStreams?: boolean, hint?: string, shown?: (value: any) => string }} Figure */

/** What has a column. `name`: as the server calls it; `shown`: how its spread is told. @type {Figure[]} */
const FIGURES = [
  { title: "Records in", name: "records-in", isNumber: true, isOfStreams: true, shown: rate, cell: (one) => rate(one["records-in"]) },
  { title: "Records out", name: "records-out", isNumber: true, isOfStreams: true, shown: rate, cell: (one) => rate(one["records-out"]) },
  { title: "Bytes in", name: "bytes-in", isNumber: true, isOfStreams: true, shown: byteRate, cell: (one) => byteRate(one["bytes-in"]) },
  { title: "Bytes out", name: "bytes-out", isNumber: true, isOfStreams: true, shown: byteRate, cell: (one) => byteRate(one["bytes-out"]) },
  { title: "Busy", name: "busy", isOfStreams: true, shown: share, cell: (one) => html`<${Share} value=${one.busy} kind="busy" />` },
  { title: "Back-pressured", name: "back-pressured", isOfStreams: true, shown: share, cell: (one) => html`<${Share} value=${one["back-pressured"]} kind="blocked" />` },
  { title: "Idle", name: "idle", isOfStreams: true, shown: share, cell: (one) => html`<${Share} value=${one.idle} kind="idle" />` },
  { title: "Queue in", name: "queued-in", isNumber: true, isOfStreams: true, hint: "Buffers that wait for the subtask", shown: count, cell: (one) => count(one["queued-in"]) },
  { title: "Queue out", name: "queued-out", isNumber: true, isOfStreams: true, hint: "Buffers that wait for its consumers", shown: count, cell: (one) => count(one["queued-out"]) },
  { title: "Watermark lag", name: "watermark-lag", isNumber: true, isOfStreams: true, shown: duration, cell: (one) => duration(one["watermark-lag"]) },
  { title: "State size", name: "state-bytes", isNumber: true, isOfStreams: true, hint: "In the last complete checkpoint", shown: bytes, cell: (one) => bytes(one["state-bytes"]) },
  { title: "Records in, all", name: "records-in-total", isNumber: true, hint: "Since the start of the attempt", shown: count, cell: (one) => count(one["records-in-total"]) },
  { title: "Records out, all", name: "records-out-total", isNumber: true, hint: "Since the start of the attempt", shown: count, cell: (one) => count(one["records-out-total"]) },
  { title: "Duration", name: "duration", isNumber: true, hint: "Of the attempt, since its deployment", shown: duration, cell: (one) => html`<span title=${durations(one)}>${duration(one.duration)}</span>` },
  { title: "Attempts", name: "attempts", isNumber: true, shown: count, cell: (one) => count(one.attempts) },
];

/** @param {{ job: string, vertex: string, query: Record<string, string>, config: any }} props */
export function Page({ job, vertex, query, config }) {
  const isArchive = config.features?.["web-history"] ?? false;
  return html`
    <${VertexFrame} job=${job} vertex=${vertex} tab="" config=${config}>
      ${query.subtask !== undefined && html`<${Subtask} key=${query.subtask} job=${job} vertex=${vertex} subtask=${query.subtask} isArchive=${isArchive} />`}
      <${All} job=${job} vertex=${vertex} query=${query} isArchive=${isArchive} />
    <//>
  `;
}

function All({ job, vertex, query, isArchive }) {
  const path = `/jobs/${job}/vertices/${vertex}`;
  const about = useLive(`/jobs/${job}`)?.body;
  const page = pageOf(query);
  const asked = new URLSearchParams({ offset: String(page * OF_A_PAGE), limit: String(OF_A_PAGE) });
  for (const name of ["sort", "order", "state"]) if (query[name]) asked.set(name, query[name]);
  const told = useLive(isArchive ? path : `${path}/table?${asked}`);
  const absent = missing(told, "the subtasks");
  if (absent || !told) return absent;
  const isBatch = isOfBatch(about);
  const body = isArchive ? archivedTable(told.body, query, page * OF_A_PAGE, OF_A_PAGE) : told.body;
  const figures = FIGURES.filter((one) => !(isBatch || isArchive) || !one.isOfStreams);
  const noun = isBatch ? "tasks" : "subtasks";
  const pages = Math.max(1, Math.ceil(body.total / OF_A_PAGE));
  const more = html`<${Filter} about=${about} vertex=${vertex} chosen=${query.state} />
    <${Pages} page=${page} pages=${pages} total=${body.total} size=${OF_A_PAGE} noun=${noun} />`;
  return html`
    ${isBatch && html`<${Stage} job=${job} vertex=${vertex} about=${about} isArchive=${isArchive} />`}
    <${Card} title=${isBatch ? "Tasks" : "Subtasks"} more=${more}>
      <${Spread} quantiles=${body.quantiles} figures=${figures} />
      <${Table}
        caption=${`The ${noun} of the vertex`} columns=${columnsOf(job, vertex, body, figures, query.subtask)} rows=${body.subtasks}
        keyOf=${(/** @type {any} */ one) => one.subtask} sorted=${sortedBy(query, figures)}
        empty=${query.state ? `No subtask is ${query.state}.` : page > 0 ? "There are fewer pages." : "There are none yet: the parallelism is decided when the vertex begins."}
      />
      <${Over} text=${isArchive ? "Numbers are of the whole time of the last attempt of each subtask." : `Rates: of the last seconds. ${SHARES_OVER} All others: now, or since the attempt began.`} />
    <//>
  `;
}

/** Only subtasks in one state. */
function Filter({ about, vertex, chosen }) {
  const counts = about?.vertices.find((/** @type {any} */ one) => one.id === vertex)?.tasks ?? {};
  const states = Object.keys(counts).filter((state) => counts[state] > 0 || state === chosen);
  if (states.length < 2 && !chosen) return null;
  return html`<label class="row">
    In state
    <select value=${chosen ?? ""} onChange=${(/** @type {any} */ event) => change({ state: event.currentTarget.value, page: null })}>
      <option value="">any</option>
      ${states.map((state) => html`<option value=${state}>${state} (${exact(counts[state])})</option>`)}
    </select>
  </label>`;
}

/** Least, median and most of each figure, over all subtasks that are meant. */
function Spread({ quantiles, figures }) {
  const known = figures.filter((/** @type {Figure} */ one) => quantiles[one.name] && one.name !== "attempts");
  if (known.length === 0) return null;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Spread over the subtasks">
      <table class="spread">
        <caption class="unseen">Spread over the subtasks</caption>
        <thead><tr><td></td>${known.map((/** @type {Figure} */ one) => html`<th scope="col" class="number" title=${one.hint}>${one.title}</th>`)}</tr></thead>
        <tbody>
          ${[["max", "Most"], ["median", "Median"], ["min", "Least"]].map(
            ([name, title]) => html`<tr><th scope="row">${title}</th>${known.map((/** @type {any} */ one) => html`<td class="number">${one.shown(quantiles[one.name][name])}</td>`)}</tr>`,
          )}
        </tbody>
      </table>
    </div>
  `;
}

function durations(/** @type {any} */ one) {
  const known = Object.entries(one["state-durations"]).filter(([, ms]) => ms !== null);
  return known.map(([state, ms]) => `${state} ${duration(/** @type {number} */ (ms))}`).join(", ");
}

/** The names by which the server sorts, by the titles of columns. */
function sortedBy(/** @type {Record<string, string>} */ query, /** @type {Figure[]} */ figures) {
  const names = /** @type {Record<string, string>} */ ({ Subtask: "subtask", "In state": "state", ...Object.fromEntries(figures.map((one) => [one.title, one.name])) });
  return {
    by: Object.keys(names).find((title) => names[title] === (query.sort ?? "subtask")) ?? "",
    isDescending: query.order === "desc",
    choose: (/** @type {string} */ title, /** @type {boolean} */ isDescending) =>
      change({ sort: names[title], order: isDescending ? "desc" : "asc", page: null }),
  };
}

const isSorted = () => true;

function columnsOf(/** @type {string} */ job, /** @type {string} */ vertex, /** @type {any} */ body, /** @type {Figure[]} */ figures, /** @type {string | undefined} */ chosen) {
  const show = (/** @type {any} */ one) => (/** @type {Event} */ event) => {
    event.preventDefault();
    change({ subtask: String(one.subtask) === chosen ? null : one.subtask }, { isStep: true });
    document.getElementById("content")?.scrollIntoView();
  };
  return [
    {
      title: "Subtask", isName: true, value: isSorted,
      cell: (one) => html`<a href=${to(["jobs", job, "vertices", vertex], { subtask: one.subtask })} aria-current=${String(one.subtask) === chosen ? "true" : null} onClick=${show(one)}>${one.subtask}</a>`,
    },
    { title: "In state", value: isSorted, cell: (one) => html`<span title=${durations(one)}><${State} state=${one.state} /></span>` },
    { title: "Attempt", isNumber: true, cell: (one) => one.attempt },
    { title: "Place", cell: (one) => html`<${Place} one=${one} />` },
    ...figures.map((one) => ({
      title: one.title, isNumber: one.isNumber, hint: one.hint, value: isSorted,
      cell: (/** @type {any} */ row) => (row[one.name] === null ? html`<span class="quiet" title="It is not known of this subtask.">n/a</span>` : one.cell(row, body)),
    })),
  ];
}

function Place({ one }) {
  if (!one["taskmanager-id"]) return html`<span class="quiet" title=${one.endpoint ?? "It has no slot yet."}>${one.endpoint ?? "n/a"}</span>`;
  return html`<span class="nowrap" title=${`${one.endpoint}${one.slot ? `, slot ${one.slot}` : ""}`}><a href=${to(["taskmanagers", one["taskmanager-id"]])}>${one["taskmanager-id"]}</a></span>`;
}
