// @ts-check
/** The first screen of a job: what limits it, and everything that shows why. */

import { to } from "../../base/address.js";
import { duration } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useAhead, useLive } from "../../base/live.js";
import { Card, missing, Share } from "../../parts/common.js";
import { JobGraph } from "../../parts/graph.js";
import { Stages } from "../../parts/stages.js";
import { JobFrame } from "./frame.js";
import { LastCheckpoints, LastFailures, Throughput } from "./recent.js";

const WORST = 4;

const paths = (/** @type {string} */ job) => [
  ...["/graph", "/bottleneck", "/story", "/exceptions/groups", "/checkpoints/strip"].map((one) => `/jobs/${job}${one}`),
  worstOf(job, "busy"),
  worstOf(job, "backPressured"),
];
const worstOf = (/** @type {string} */ job, /** @type {string} */ figure) => `/jobs/${job}/metrics/top-n?metric=${figure}TimeMsPerSecond&n=${WORST}`;

export function Page({ job, query, config }) {
  useAhead(paths(job));
  return html`
    <${JobFrame} job=${job} tab="" config=${config}>
      <${FirstScreen} job=${job} query=${query} isArchive=${config.features?.["web-history"]} />
    <//>
  `;
}

function FirstScreen({ job, query, isArchive }) {
  const told = useLive(`/jobs/${job}/graph`);
  const verdict = useLive(`/jobs/${job}/bottleneck`);
  const absent = missing(told, "the graph");
  if (absent || !told) return absent;
  const isBatch = told.body.job["job-type"] === "BATCH";
  return html`
    <${Card} title="Graph">
      <${JobGraph} job=${job} told=${told.body} culprit=${verdict?.body?.limit?.["vertex-id"] ?? null} opened=${query.fold} />
    <//>
    ${isBatch && html`<${BatchStages} job=${job} isArchive=${isArchive} />`}
    <div class="columns">
      <${Throughput} job=${job} nodes=${told.body.nodes} ended=${told.body.job["end-time"]} />
      ${!isBatch && html`<${LastCheckpoints} job=${job} />`}
      <${Worst} job=${job} />
      <${LastFailures} job=${job} />
    </div>
  `;
}

/** A vertex of a BATCH job is a stage of Spark. */
function BatchStages({ job, isArchive }) {
  const told = useLive(`/jobs/${job}`);
  return missing(told, "the stages") ?? html`<${Stages} job=${job} about=${told?.body} isArchive=${isArchive} />`;
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
