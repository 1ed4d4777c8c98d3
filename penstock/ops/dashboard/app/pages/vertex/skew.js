// @ts-check
/** How the records of a vertex are spread over its subtasks and their key groups. */

import { to } from "../../base/address.js";
import { count, exact } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Bound, Card, Facts, missing, Moment, Over } from "../../parts/common.js";
import { Table } from "../../parts/table.js";
import { VertexFrame } from "./frame.js";

/** From here on a subtask counts as skewed, as in the verdict. */
const SKEWED = 2;
const LEAST_RECORDS = 1000;

/** @param {{ job: string, vertex: string, config: any }} props */
export function Page({ job, vertex, config }) {
  return html`
    <${VertexFrame} job=${job} vertex=${vertex} tab="skew" config=${config}><${Skew} job=${job} vertex=${vertex} /><//>
  `;
}

function Skew({ job, vertex }) {
  const told = useLive(`/jobs/${job}/vertices/${vertex}/skew`);
  const absent = missing(told, "the skew");
  if (absent || !told) return absent;
  const { body } = told;
  const { quantiles } = body;
  /** @type {(name: string, shown: (value: any) => any) => any} */
  const known = (name, shown) => (body[name] === null ? html`<span class="quiet" title=${body.why[name]}>n/a</span>` : shown(body[name]));
  return html`
    <${Card} title="Records by subtask">
      <${Facts}
        facts=${[
          ["Records", known("records", exact), "Since the start of each attempt"],
          ["The usual subtask gets", known("usual", exact), "Median of all subtasks but the one with most records"],
          ["The one with most gets", known("factor", (factor) => html`<${Times} factor=${factor} records=${body.subtasks[0]?.records} />`), "Times the records of the usual one"],
          ...(quantiles ? [["Least", exact(quantiles.min)], ["p25", count(quantiles.p25)], ["Median", count(quantiles.median)], ["p75", count(quantiles.p75)], ["p95", count(quantiles.p95)], ["Most", exact(quantiles.max)]] : []),
          ["Key groups", body.keyed ? exact(body["max-parallelism"]) : html`<span class="quiet" title=${body.why["key-groups"]}>n/a</span>`],
        ]}
      />
      <${Table}
        caption="Records by subtask" columns=${columnsOf(job, vertex, body)} rows=${body.subtasks} first="Records" keyOf=${(/** @type {any} */ one) => one.subtask}
        empty=${body.why.records ? `Not known: ${body.why.records}.` : undefined}
      />
      <${Bound} shown=${body.shown} total=${body.reported} noun="subtasks" why="those with most records" />
      ${body.reported < body.total && html`<p class="quiet">${exact(body.total - body.reported)} of ${exact(body.total)} subtasks have not reported yet.</p>`}
      ${!body.keyed && html`<p class="quiet">Key groups: ${body.why["key-groups"]}.</p>`}
      <${Over} text="Records: of each subtask since its attempt began." />
    <//>
  `;
}

const isSkewed = (/** @type {number | null} */ factor, /** @type {number} */ records) => factor !== null && factor >= SKEWED && records >= LEAST_RECORDS;

function Times({ factor, records }) {
  if (factor === null) return html`<span class="quiet">n/a</span>`;
  const text = `${factor >= 100 ? exact(Math.round(factor)) : factor.toFixed(1)} \u00d7`;
  return isSkewed(factor, records) ? html`<b class="bad-text" title="Skewed: twice the usual records, or more">\u26a0 ${text}</b>` : text;
}

function columnsOf(/** @type {string} */ job, /** @type {string} */ vertex, /** @type {any} */ body) {
  const most = body.quantiles?.max || 1;
  const usual = (body.usual ?? 0) / most;
  const columns = [
    {
      title: "Subtask", isName: true, value: (one) => one.subtask,
      cell: (one) => html`<a href=${to(["jobs", job, "vertices", vertex], { subtask: one.subtask })}>${one.subtask}</a>`,
    },
    { title: "Records", isNumber: true, value: (one) => one.records, cell: (one) => exact(one.records) },
    { title: "Share of the most", hint: "The line is the usual subtask", cell: (one) => html`<${Bar} value=${one.records / most} usual=${usual} />` },
    { title: "Times the usual", isNumber: true, value: (one) => one.factor, cell: (one) => html`<${Times} factor=${one.factor} records=${one.records} />` },
  ];
  const groups = [
    {
      title: "Key groups", hint: "The range that the subtask has", value: (one) => one["key-groups"]?.first,
      cell: (one) => (one["key-groups"] ? `${one["key-groups"].first} to ${one["key-groups"].last}` : "n/a"),
    },
    {
      title: "Records a key group", isNumber: true, hint: "On average", value: (one) => one["key-groups"]?.["records-each"],
      cell: (one) => count(one["key-groups"]?.["records-each"]),
    },
  ];
  const since = { title: "Runs since", value: (one) => one["running-since"], cell: (one) => html`<${Moment} at=${one["running-since"]} />` };
  return [...columns, ...(body.keyed ? groups : []), since];
}

/** The number stands in the column next to it. */
function Bar({ value, usual }) {
  return html`<span class="skew-bar" aria-hidden="true" style=${{ "--share": value, "--usual": usual }}><i></i><u></u></span>`;
}
