// @ts-check
/** All TaskManagers: what they use, since when one is silent, and why one was lost. */

import { change, to } from "../../base/address.js";
import { duration, exact } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Bound, Card, Facts, missing, Moment, Over } from "../../parts/common.js";
import { Buffers, Cpu, Figure, Memory, PROCESS_OVER } from "../../parts/process_figures.js";
import { pageOf, Pages } from "../../parts/pages.js";
import { Table } from "../../parts/table.js";
import { isArchive, NotOfArchive } from "./frame.js";

const SIZE = 100;

/** The titles of columns by which the server sorts. */
const SORTS = /** @type {Record<string, string>} */ ({
  TaskManager: "id",
  Host: "host",
  CPU: "cpu",
  Memory: "resident",
  "Last heard": "heard",
  "Free slots": "slots-free",
  Subtasks: "tasks",
});

/** @param {{ query: Record<string, string>, config: any }} props */
export function Page({ query, config }) {
  return html`<h1>TaskManagers</h1>
    ${isArchive(config) ? html`<${NotOfArchive} />` : html`<${All} query=${query} />`}`;
}

function All({ query }) {
  const asked = new URLSearchParams({ page: String(pageOf(query)) });
  if (query.sort) asked.set("sort", query.sort);
  if (query.order) asked.set("order", query.order);
  const told = useLive(`/taskmanagers/health?${asked}`);
  const absent = missing(told, "the TaskManagers");
  if (absent || !told) return absent;
  const { body } = told;
  const slots = body["slots-total"];
  return html`
    <${Facts}
      facts=${[
        ["TaskManagers", exact(body.total)],
        ["Slots in use", `${exact(slots - body["slots-free"])} of ${exact(slots)}`],
        ["Late heartbeats", body.late ? html`<span class="bad-text">\u26a0 ${exact(body.late)}</span>` : "none"],
        ["Lost", body["lost-total"] ? html`<a href="#lost" onClick=${toLost}>${exact(body["lost-total"])}</a>` : "none"],
      ]}
    />
    <${Card} title="There" more=${html`<${Pages} page=${body.page} pages=${body.pages} total=${body.total} size=${SIZE} noun="TaskManagers" />`}>
      <${Table}
        caption="TaskManagers" columns=${COLUMNS} rows=${body.taskmanagers.map((/** @type {any} */ one) => ({ ...one, now: body.now }))}
        keyOf=${(/** @type {any} */ one) => one.id} sorted=${sortedBy(query)}
        empty="There is no TaskManager. A streaming job asks Spark for its own when it starts; a job of BATCH needs none."
      />
    <//>
    <${Over} text=${PROCESS_OVER} />
    ${body.lost.length > 0 && html`<${Lost} body=${body} />`}
  `;
}

/** The address of this page has its sort, so a link within it moves the view only. */
function toLost(/** @type {Event} */ event) {
  event.preventDefault();
  document.getElementById("lost")?.scrollIntoView();
}

function sortedBy(/** @type {Record<string, string>} */ query) {
  const by = Object.keys(SORTS).find((title) => SORTS[title] === query.sort) ?? "";
  return {
    by,
    isDescending: query.order === "desc",
    choose: (/** @type {string} */ title, /** @type {boolean} */ isDescending) =>
      change({ sort: SORTS[title], order: isDescending ? "desc" : "asc", page: null }),
  };
}

const isSorted = () => true;

const COLUMNS = [
  { title: "TaskManager", isName: true, value: isSorted, cell: (one) => html`<a href=${to(["taskmanagers", one.id])}>${one.id}</a>` },
  { title: "Host", value: isSorted, cell: (one) => one.host },
  { title: "Job", cell: (one) => html`<a href=${to(["jobs", one["job-id"]])}>${one["job-name"]}</a>` },
  { title: "Free slots", isNumber: true, value: isSorted, cell: (one) => html`${one["slots-free"]} <span class="quiet">of ${one["slots-total"]}</span>` },
  { title: "Subtasks", isNumber: true, value: isSorted, cell: (one) => exact(one.tasks) },
  { title: "CPU", value: isSorted, hint: "Share of all cores of its machine", cell: (one) => html`<${Cpu} one=${one} />` },
  { title: "Memory", isNumber: true, value: isSorted, hint: "Resident memory of the process", cell: (one) => html`<${Memory} one=${one} />` },
  { title: "Arrow", isNumber: true, hint: "Of it, memory of Arrow's columns and buffers", cell: (one) => html`<${Figure} value=${one.arrow} kind="bytes" />` },
  { title: "Buffers free", isNumber: true, hint: "Buffers of the network", cell: (one) => html`<${Buffers} one=${one} />` },
  { title: "Last heard", isNumber: true, value: isSorted, cell: (one) => html`<${Heard} one=${one} />` },
];

/** When the last sign of life came. Late: more than half of the time has gone after which it counts as lost. */
export function Heard({ one }) {
  const ago = `${duration(Math.max(0, one.now - one.heard))} ago`;
  return one.late ? html`<b class="bad-text" title="Its heartbeats are late.">\u26a0 ${ago}</b>` : ago;
}

const LOST = [
  { title: "TaskManager", isName: true, cell: (one) => html`<a href=${to(["taskmanagers", one.id])}>${one.id}</a>` },
  { title: "Host", cell: (one) => one.host },
  { title: "Job", cell: (one) => html`<a href=${to(["jobs", one["job-id"]])}>${one["job-name"]}</a>` },
  { title: "Last heard", cell: (one) => html`<${Moment} at=${one.heard} />` },
  { title: "Reason", cell: (one) => html`<pre class="reason" tabindex="0" role="region" aria-label="Reason of the loss">${one.reason}</pre>` },
  { title: "Log", cell: (one) => html`<a href=${to(["taskmanagers", one.id, "log"])}>last lines</a>` },
];

function Lost({ body }) {
  return html`
    <${Card} title="Lost" id="lost">
      <${Table} caption="Lost TaskManagers" columns=${LOST} rows=${body.lost} keyOf=${(/** @type {any} */ one) => one.id} sorted=${AS_TOLD} />
      <${Bound} shown=${body.lost.length} total=${body["lost-total"]} noun="lost TaskManagers" why="the newest" />
    <//>
  `;
}

const AS_TOLD = { by: "", isDescending: false, choose: () => {} };
