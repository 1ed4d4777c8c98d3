// @ts-check
/** One checkpoint subtask by subtask: when each began, what it waited for, and how long it wrote. Stragglers stand first. */

import { to } from "../../base/address.js";
import { bytes, duration } from "../../base/format.js";
import { html } from "../../base/html.js";
import { Bound } from "../common.js";
import { Table } from "../table.js";

/** The phases in their order. @type {[key: string, name: string, kind: string, hint: string][]} */
const PHASES = [
  ["start-delay", "Start delay", "delay", "until the first barrier came"],
  ["alignment", "Alignment", "alignment", "until the last barrier came"],
  ["sync", "Sync", "sync", "the task stands still"],
  ["async", "Async", "async", "the state is written outside the task's thread"],
];

/** `body`: as `/jobs/:id/checkpoints/details/:checkpoint/gantt` tells it. */
export function Gantt({ job, body }) {
  const longest = Math.max(1, ...body.subtasks.map(lengthOf));
  return html`
    <ul class="row plain phases" aria-label="Phases">
      ${PHASES.map(([, name, kind, hint]) => html`<li><i class=${`phase ${kind}`} aria-hidden="true"></i> ${name} <span class="quiet">${hint}</span></li>`)}
      ${body.missing > 0 && html`<li><i class="phase missing" aria-hidden="true"></i> Missing <span class="quiet">not acknowledged</span></li>`}
    </ul>
    <${Bound} shown=${body.shown} total=${body.total} noun="subtasks" why="those that are missing, then those that took longest" />
    <${Table} caption="Subtasks of the checkpoint, stragglers first" columns=${columnsOf(job, longest)} rows=${body.subtasks} keyOf=${keyOf} empty="No subtask has a part in this checkpoint yet." />
  `;
}

/** The phases of an unaligned checkpoint overlap: together they may be longer than it took. */
function lengthOf(/** @type {any} */ row) {
  return Math.max(row.after, PHASES.reduce((sum, [key]) => sum + (row[key] ?? 0), 0));
}

const keyOf = (/** @type {any} */ row) => `${row["vertex-id"]}-${row.subtask}`;

const columnsOf = (/** @type {string} */ job, /** @type {number} */ longest) => [
  { title: "Subtask", isName: true, cell: (row) => html`<a href=${to(["jobs", job, "vertices", row["vertex-id"]])}>${row["vertex-name"]}</a> <b>${row.subtask}</b>` },
  { title: "Time", cell: (row) => html`<${Bars} row=${row} longest=${longest} />` },
  { title: "Took", isNumber: true, value: (row) => row.after, cell: (row) => (row.missing ? html`<span class="bad-text">missing for ${duration(row.after)}</span>` : duration(row.after)) },
  ...PHASES.map(([key, title, , hint]) => ({ title, hint, isNumber: true, value: (row) => row[key], cell: (row) => duration(row[key]) })),
  { title: "State", hint: "size of its state", isNumber: true, value: (row) => row["state-bytes"], cell: (row) => bytes(row["state-bytes"]) },
  { title: "Written", hint: "what was new in it", isNumber: true, value: (row) => row["written-bytes"], cell: (row) => bytes(row["written-bytes"]) },
  { title: "In flight", hint: "records on their way that an unaligned checkpoint keeps", isNumber: true, value: (row) => row["in-flight-bytes"], cell: (row) => bytes(row["in-flight-bytes"]) },
];

/** The phases on the time axis of the checkpoint. Alignment is a part of the time until the sync phase. */
function Bars({ row, longest }) {
  if (row.missing) {
    return html`<span class="gantt" role="img" aria-label=${`missing for ${duration(row.after)}`}><i class="phase missing" style=${{ width: `${(100 * row.after) / longest}%` }}></i></span>`;
  }
  const said = PHASES.map(([key, name]) => `${name.toLowerCase()} ${duration(row[key])}`).join(", ");
  return html`
    <span class="gantt" role="img" aria-label=${said} title=${said}>
      ${PHASES.map(([key, , kind]) => row[key] > 0 && html`<i class=${`phase ${kind}`} style=${{ width: `${(100 * row[key]) / longest}%` }}></i>`)}
    </span>
  `;
}
