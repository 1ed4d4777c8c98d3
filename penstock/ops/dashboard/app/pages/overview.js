// @ts-check
/** All jobs of this driver, what is wrong with those that run, and what runs them. */

import { to } from "../base/address.js";
import { count, counted, duration, exact } from "../base/format.js";
import { html } from "../base/html.js";
import { useConnection, useLive } from "../base/live.js";
import { Bound, Card, Facts, missing, Moment, State } from "../parts/common.js";
import { pageOf, Pages } from "../parts/pages.js";
import { SlotMap } from "../parts/slot_map.js";
import { Table } from "../parts/table.js";

/** Of so many jobs the verdict is asked for: the stream tells at most 32 answers. */
const MOST_VERDICTS = 20;
const OF_A_PAGE = 50;
const ENDED = new Set(["FINISHED", "CANCELED", "FAILED"]);

/** @param {{ query: Record<string, string>, config: any }} props */
export function Page({ query, config }) {
  const isArchive = config.features?.["web-history"] ?? false;
  const told = useLive("/jobs/overview");
  const absent = missing(told, "the jobs");
  if (absent || !told) return html`<h1>${titleOf(isArchive)}</h1>${absent}`;
  const jobs = told.body.jobs;
  const running = jobs.filter((/** @type {any} */ one) => !ENDED.has(one.state));
  const ended = jobs.filter((/** @type {any} */ one) => ENDED.has(one.state));
  return html`
    <h1>${titleOf(isArchive)}</h1>
    ${!isArchive && html`<${Cluster} />`}
    ${!isArchive && html`<${Running} jobs=${running} hasEnded=${ended.length > 0} />`}
    ${(ended.length > 0 || isArchive) && html`<${Ended} jobs=${ended} isArchive=${isArchive} query=${query} />`}
    ${isArchive ? html`<${Damaged} />` : html`<${SlotMap} query=${query} />`}
  `;
}

const titleOf = (/** @type {boolean} */ isArchive) => (isArchive ? "Jobs that have ended" : "Jobs of this driver");

/** The cluster in one line. */
function Cluster() {
  const told = useLive("/overview");
  const slots = useLive("/slots")?.body;
  const absent = missing(told, "the cluster");
  if (absent || !told) return absent;
  const { body } = told;
  const late = slots?.late.length ?? 0;
  const names = slots?.late.slice(0, 10).join(", ");
  return html`<${Facts}
    facts=${[
      ["TaskManagers", html`<a href=${to(["taskmanagers"])}>${exact(body.taskmanagers)}</a>`],
      ["Slots", exact(body["slots-total"])],
      ["Slots free", exact(body["slots-available"])],
      ["Slots wanted", slots ? (slots.missing ? html`<span class="bad-text">\u26a0 ${exact(slots.missing)}</span>` : "none") : "n/a", "Slots that jobs lack"],
      ["Late heartbeats", slots ? (late ? html`<a class="bad-text" href=${to(["taskmanagers"])} title=${names}>\u26a0 ${exact(late)}</a>` : "none") : "n/a"],
      ["Jobs running", exact(body["jobs-running"])],
      ["finished", exact(body["jobs-finished"])],
      ["cancelled", exact(body["jobs-cancelled"])],
      ["failed", body["jobs-failed"] ? html`<span class="bad-text">${exact(body["jobs-failed"])}</span>` : "0"],
    ]}
  />`;
}

const JOB = { title: "Job", isName: true, value: (job) => job.name, cell: (job) => html`<${Name} job=${job} />` };
const STATE = { title: "State", value: (job) => job.state, cell: (job) => html`<${State} state=${job.state} />` };
const SUBTASKS = { title: "Subtasks", cell: (job) => subtasks(job) };
const BEGAN = { title: "Began", value: (job) => job["start-time"], cell: (job) => html`<${Moment} at=${job["start-time"]} />` };
const LASTED = { title: "Duration", isNumber: true, value: (job) => job.duration, cell: (job) => duration(job.duration) };
const KIND = { title: "Kind", value: (job) => job.jobType, cell: (job) => job.jobType?.toLowerCase() ?? "n/a" };
const END = { title: "Ended", value: (job) => job["end-time"], cell: (job) => html`<${Moment} at=${job["end-time"]} />` };

function Name({ job }) {
  return html`<a href=${to(["jobs", job.jid])}>${job.name ?? job.jid}</a>${job.hasVerdict && html`<${Illness} job=${job.jid} />`}`;
}

/** What is wrong with a job, in a sentence. Nothing is said of a job with which nothing is wrong. */
function Illness({ job }) {
  const told = useLive(`/jobs/${job}/bottleneck`);
  if (!told?.body || told.body.healthy) return null;
  return html`<p class="illness"><span aria-hidden="true">\u26a0</span> ${told.body.sentence}</p>`;
}

/** Archives that cannot be read. A server of Flink's has no such list. */
function Damaged() {
  const told = useLive("/archives/damaged")?.body;
  if (!told?.total) return null;
  return html`
    <${Card} title=${`${counted(told.total, "archive")} cannot be read`}>
      ${told.archives.map((/** @type {any} */ one) => html`<p key=${one.file} class="bad-text"><code>${one.file}</code>: ${one.cause}</p>`)}
      <${Bound} shown=${told.archives.length} total=${told.total} noun="archives" />
    <//>
  `;
}

function subtasks(/** @type {any} */ { tasks = {}, jobType }) {
  const others = Object.entries(tasks).filter(([state, number]) => number && !["running", "total"].includes(state));
  const all = tasks.total === 1 ? "1 runs" : `${count(tasks.running)} of ${count(tasks.total)} run`;
  const first = jobType === "BATCH" && !tasks.running ? [] : [tasks.total === 1 && !tasks.running ? "0 of 1 run" : all];
  return [...first, ...others.map(([state, number]) => `${exact(/** @type {number} */ (number))} ${state}`)].join(", ");
}

function Running({ jobs, hasEnded }) {
  const isLost = useConnection().state === "lost";
  const known = isLost ? "ran when the driver last answered" : "running";
  const newest = [...jobs].sort((left, right) => right["start-time"] - left["start-time"]);
  const rows = newest.map((one, place) => ({ ...one, hasVerdict: place < MOST_VERDICTS }));
  return html`
    <${Card} title=${jobs.length ? `${counted(jobs.length, "job")} ${known}` : "No job is running"}>
      <${Table}
        caption="Jobs that run" columns=${[JOB, STATE, SUBTASKS, BEGAN, LASTED, KIND]} rows=${rows} first="Began" keyOf=${(/** @type {any} */ job) => job.jid}
        empty=${hasEnded ? "All jobs of this driver have ended." : "This driver has no job yet. A program starts one with env.execute()."}
      />
      <${Bound} shown=${Math.min(rows.length, MOST_VERDICTS)} total=${rows.length} noun="verdicts" why="of the newest jobs" />
    <//>
  `;
}

function Ended({ jobs, isArchive, query }) {
  const newest = [...jobs].sort((left, right) => right["end-time"] - left["end-time"]);
  const pages = Math.max(1, Math.ceil(newest.length / OF_A_PAGE));
  const page = Math.min(pageOf(query), pages - 1);
  const more = html`<${Pages} page=${page} pages=${pages} total=${newest.length} size=${OF_A_PAGE} noun="jobs" />`;
  return html`
    <${Card} title=${`${counted(jobs.length, "job")} ended`} more=${more}>
      <${Table}
        caption="Jobs that have ended" columns=${[JOB, STATE, SUBTASKS, BEGAN, END, LASTED, KIND]} rows=${newest.slice(page * OF_A_PAGE, (page + 1) * OF_A_PAGE)}
        first="Ended" keyOf=${(/** @type {any} */ job) => job.jid}
        empty=${isArchive ? "There is no archive yet. A driver writes one when a job ends, if jobmanager.archive.fs.dir names this folder." : undefined}
      />
    <//>
  `;
}
