// @ts-check
/** The first screen of a job: what limits it, and everything that shows why. */

import { to } from "../../base/address.js";
import { bytes, duration, exact, share } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useAhead, useLive } from "../../base/live.js";
import { Bound, Card, missing, Over, Share, SHARES_OVER } from "../../parts/common.js";
import { JobGraph } from "../../parts/graph.js";
import { Stages } from "../../parts/stages.js";
import { Table } from "../../parts/table.js";
import { JobFrame } from "./frame.js";
import { LastCheckpoints, LastFailures, Throughput } from "./recent.js";

const WORST = 4;
const MOST_TOTALS = 50;
const OVER_ALL = "Records and bytes: all of the last attempt of each subtask. State: of the last checkpoint.";

const paths = (/** @type {string} */ job) => ["/graph", "/bottleneck", "/story", "/exceptions/groups", "/checkpoints/strip"].map((one) => `/jobs/${job}${one}`);
const pathsOfWorst = (/** @type {string} */ job) => [worstOf(job, "busy"), worstOf(job, "backPressured")];
const worstOf = (/** @type {string} */ job, /** @type {string} */ figure) => `/jobs/${job}/metrics/top-n?metric=${figure}TimeMsPerSecond&n=${WORST}`;

export function Page({ job, query, config }) {
  const isArchive = config.features?.["web-history"];
  useAhead(isArchive ? paths(job) : [...paths(job), ...pathsOfWorst(job)]);
  return html`
    <${JobFrame} job=${job} tab="" config=${config}>
      <${FirstScreen} job=${job} query=${query} isArchive=${isArchive} />
    <//>
  `;
}

function FirstScreen({ job, query, isArchive }) {
  const told = useLive(`/jobs/${job}/graph`);
  const verdict = useLive(`/jobs/${job}/bottleneck`);
  const absent = missing(told, "the graph");
  if (absent || !told) return absent;
  const isBatch = told.body.job["job-type"] === "BATCH";
  const isOver = isArchive || told.body.job["end-time"] !== null;
  return html`
    <${Card} title="Graph">
      <${JobGraph} job=${job} told=${told.body} culprit=${verdict?.body?.limit?.["vertex-id"] ?? null} opened=${query.fold} />
      <${Over} text=${isOver ? OVER_ALL : `Records: of the last second. ${SHARES_OVER}`} />
    <//>
    ${isBatch && html`<${BatchStages} job=${job} isArchive=${isArchive} />`}
    <div class="columns">
      <${Throughput} job=${job} nodes=${told.body.nodes} ended=${told.body.job["end-time"]} />
      ${!isBatch && html`<${LastCheckpoints} job=${job} />`}
      ${isOver ? html`<${Totals} job=${job} nodes=${told.body.nodes} />` : html`<${Worst} job=${job} />`}
      <${LastFailures} job=${job} />
    </div>
  `;
}

/** A vertex of a BATCH job is a stage of Spark. */
function BatchStages({ job, isArchive }) {
  const told = useLive(`/jobs/${job}`);
  return missing(told, "the stages") ?? html`<${Stages} job=${job} about=${told?.body} isArchive=${isArchive} />`;
}

/** What the vertices of a job that has ended have done, the sources first: nothing is worst any more. */
function Totals({ job, nodes }) {
  const told = useLive(`/jobs/${job}`);
  const absent = missing(told, "the totals");
  const all = told?.body?.vertices ?? [];
  const totals = new Map(nodes.map((/** @type {any} */ one) => [one.id, one.total]));
  const of = (/** @type {string} */ key, /** @type {(value: number | undefined) => string} */ format) => (/** @type {any} */ one) => format(totals.get(one.id)?.[key]);
  const columns = [
    { title: "Vertex", isName: true, cell: (/** @type {any} */ one) => html`<a href=${to(["jobs", job, "vertices", one.id])}>${one.name}</a>` },
    { title: "Records in", isNumber: true, cell: of("records-in", exact) },
    { title: "Records out", isNumber: true, cell: of("records-out", exact) },
    { title: "Bytes in", isNumber: true, cell: of("bytes-in", bytes) },
    { title: "Bytes out", isNumber: true, cell: of("bytes-out", bytes) },
    { title: "Lasted", isNumber: true, cell: (/** @type {any} */ one) => duration(one.duration < 0 ? null : one.duration) },
    { title: "Busy", isNumber: true, hint: "of the time of all its subtasks", cell: (/** @type {any} */ one) => share(busyOf(one.metrics)) },
  ];
  return html`
    <${Card} title="Totals">
      ${absent ?? html`<${Table} columns=${columns} rows=${all.slice(0, MOST_TOTALS)} caption="What the vertices have done, in the last attempt of each subtask" keyOf=${(/** @type {any} */ one) => one.id} />`}
      <${Bound} shown=${Math.min(all.length, MOST_TOTALS)} total=${all.length} noun="vertices" />
    <//>
  `;
}

function busyOf(/** @type {any} */ metrics) {
  const busy = Number(metrics["accumulated-busy-time"]);
  const lasted = busy + metrics["accumulated-idle-time"] + metrics["accumulated-backpressured-time"];
  return lasted > 0 ? busy / lasted : null;
}

/** Which subtasks have most of what makes a job slow, each with a link to where it shows. */
function Worst({ job }) {
  const busy = useLive(worstOf(job, "busy"));
  const blocked = useLive(worstOf(job, "backPressured"));
  const verdict = useLive(`/jobs/${job}/bottleneck`);
  const absent = missing(busy, "the worst subtasks");
  if (absent || !busy) return absent;
  const found = [
    ...shares(busy.body, LEAST_MS.busy, "busy", "busy"),
    ...shares(blocked?.body, LEAST_MS.blocked, "blocked", "back-pressured"),
    ...troubles(verdict?.body),
  ];
  return html`
    <${Card} title="Worst subtasks">
      ${found.length === 0 && html`<p class="quiet">No subtask is busy for half of its time, back-pressured, skewed or late.</p>`}
      ${found.length > 0 &&
      html`<div class="scroll" tabindex="0" role="region" aria-label="Worst subtasks">
        <table>
          <caption class="unseen">Worst subtasks</caption>
          <thead><tr><th scope="col">Subtask</th><th scope="col">What</th><th scope="col" class="number">How much</th></tr></thead>
          <tbody>${found.map((one) => html`<${Row} job=${job} one=${one} />`)}</tbody>
        </table>
      </div>`}
      <${Over} />
    <//>
  `;
}

function Row({ job, one }) {
  const subtask = one.subtask === null ? "" : ` \u00b7 subtask ${one.subtask}`;
  const path = ["jobs", job, "vertices", one.vertex, ...one.page];
  return html`
    <tr>
      <th scope="row"><a href=${to(path, { subtask: one.subtask })}>${one.name}</a>${subtask}</th>
      <td class="one-line">${one.what}</td>
      <td class="number">${one.amount}</td>
    </tr>
  `;
}

/** Of each second. Below it nobody needs to look: for back pressure Flink's limit for LOW. */
const LEAST_MS = { busy: 500, blocked: 100 };

function shares(/** @type {any} */ told, /** @type {number} */ least, /** @type {string} */ kind, /** @type {string} */ what) {
  const found = (told?.subtasks ?? []).filter((/** @type {any} */ one) => one.value >= least);
  return found.map((/** @type {any} */ one) => ({
    ...placeOf(one),
    what,
    page: kind === "blocked" ? ["backpressure"] : [],
    amount: html`<${Share} kind=${kind} value=${one.value / 1000} />`,
  }));
}

/** What the verdict says of single subtasks. */
function troubles(/** @type {any} */ verdict) {
  if (!verdict) return [];
  const { skewed, watermark, checkpoint } = verdict;
  const found = skewed.map((/** @type {any} */ one) => ({
    ...placeOf(one), what: "skewed", page: ["skew"], amount: `${one.factor.toFixed(1)} \u00d7 the records`,
  }));
  if (watermark?.held) {
    found.push({ ...placeOf(watermark), what: "holds the watermark", page: [], amount: `${duration(watermark.lag)} behind` });
  }
  if (checkpoint?.slow) {
    found.push({ ...placeOf(checkpoint), what: `last in checkpoint ${checkpoint.id}`, page: [], amount: duration(checkpoint.after) });
  }
  return found;
}

function placeOf(/** @type {any} */ one) {
  return { vertex: one["vertex-id"], name: one["vertex-name"], subtask: one.subtask ?? null };
}
