// @ts-check
/** Jobs of BATCH: each vertex is a stage of Spark, whose tasks begin and end one after the other. */

import { to } from "../base/address.js";
import { count, counted, duration, exact } from "../base/format.js";
import { html } from "../base/html.js";
import { useLive } from "../base/live.js";
import { shortName } from "./chain.js";
import { Card, Facts, Moment, Share, State } from "./common.js";
import { Table } from "./table.js";

const ENDED = ["FINISHED", "CANCELED", "FAILED"];

/** How many tasks of a stage have finished, and how many there are. */
function progressOf(/** @type {any} */ one) {
  const total = Object.values(one.tasks).reduce((sum, number) => sum + Number(number), 0);
  return { done: one.tasks.FINISHED ?? 0, running: one.tasks.RUNNING ?? 0, failed: one.tasks.FAILED ?? 0, total };
}

/** A known number with its unit; what a stage has read and written is known when it has ended. */
const known = (/** @type {any} */ metrics, /** @type {string} */ name) => (metrics[`${name}-complete`] ? count(metrics[name]) : html`<span class="quiet" title="It is known when all its tasks have ended">n/a</span>`);

const COLUMNS = [
  { title: "Stage", isName: true, value: (one) => one.place, cell: (one) => html`<a href=${to(["jobs", one.job, "vertices", one.id])} title=${one.name}>${shortName(one.name)}</a>` },
  { title: "State", value: (one) => one.status, cell: (one) => html`<${State} state=${one.status} />` },
  { title: "Tasks finished", value: (one) => one.progress.done / (one.progress.total || 1), cell: (one) => html`<${Progress} progress=${one.progress} />` },
  { title: "Records in", isNumber: true, value: (one) => one.metrics["read-records"], cell: (one) => known(one.metrics, "read-records") },
  { title: "Records out", isNumber: true, value: (one) => one.metrics["write-records"], cell: (one) => known(one.metrics, "write-records") },
  { title: "Began", value: (one) => one["start-time"], cell: (one) => html`<${Moment} at=${one["start-time"]} />` },
  { title: "Duration", isNumber: true, value: (one) => one.duration, cell: (one) => duration(one.duration < 0 ? null : one.duration) },
];

function Progress({ progress }) {
  const { done, running, failed, total } = progress;
  if (total === 0) return html`<span class="quiet" title="Their number is decided when the stage begins">n/a</span>`;
  const more = [running && `${exact(running)} run`, failed && `${exact(failed)} failed`].filter(Boolean).join(", ");
  return html`<span class="row stage-progress"><${Share} value=${done / total} kind="idle" title=${`${exact(done)} of ${exact(total)}`} /><span>${exact(done)} of ${exact(total)}${more && `, ${more}`}</span></span>`;
}

/** The way to Spark's own pages, where it shows some. An archive knows none. */
function SparkLink({ job, isArchive }) {
  const page = useLive(isArchive ? null : `/slots?jobid=${job}`)?.body?.["spark-ui"];
  return page ? html`<a href=${`${page}/stages/`} rel="noreferrer">Stages in Spark</a>` : null;
}

/** All stages of a job. `about`: the answer of `/jobs/:id`. @param {{ job: string, about: any, isArchive?: boolean }} props */
export function Stages({ job, about, isArchive = false }) {
  const rows = about.vertices.map((/** @type {any} */ one, /** @type {number} */ place) => ({ ...one, job, place, progress: progressOf(one) }));
  const ended = rows.filter((/** @type {any} */ one) => ENDED.includes(one.status)).length;
  return html`
    <${Card} title="Stages of Spark" more=${html`<span class="quiet">${exact(ended)} of ${counted(rows.length, "stage")} ended</span> <${SparkLink} job=${job} isArchive=${isArchive} />`}>
      <${Table} caption="Stages of the job" columns=${COLUMNS} rows=${rows} keyOf=${(/** @type {any} */ one) => one.id} first="" empty="The job has no stages." />
    <//>
  `;
}

/** One stage, above its tasks. @param {{ job: string, vertex: string, about: any, isArchive?: boolean }} props */
export function Stage({ job, vertex, about, isArchive = false }) {
  const one = about.vertices.find((/** @type {any} */ other) => other.id === vertex);
  if (!one) return null;
  return html`
    <${Card} title="Stage of Spark" more=${html`<${SparkLink} job=${job} isArchive=${isArchive} />`}>
      <${Facts}
        facts=${[
          ["State", html`<${State} state=${one.status} />`],
          ["Tasks finished", html`<${Progress} progress=${progressOf(one)} />`],
          ["Records in", known(one.metrics, "read-records")],
          ["Records out", known(one.metrics, "write-records")],
          ["Began", html`<${Moment} at=${one["start-time"]} />`],
          ["Duration", duration(one.duration < 0 ? null : one.duration)],
        ]}
      />
    <//>
  `;
}
