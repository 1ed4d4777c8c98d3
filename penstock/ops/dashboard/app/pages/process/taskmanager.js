// @ts-check
/** One TaskManager: what its process uses, which subtasks run in it, where Spark shows it, and its files. */

import { to } from "../../base/address.js";
import { duration, exact } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Bound, Card, Facts, missing, Moment, Over, Share, State } from "../../parts/common.js";
import { Buffers, Cpu, Figure, Memory, PROCESS_OVER } from "../../parts/process_figures.js";
import { Files } from "../../parts/logs/files.js";
import { shortName } from "../../parts/chain.js";
import { Table } from "../../parts/table.js";
import { isArchive, NotOfArchive, ProcessFrame } from "./frame.js";
import { Heard } from "./taskmanagers.js";

/** @param {{ taskmanager: string, config: any }} props */
export function Page({ taskmanager, config }) {
  if (isArchive(config)) return html`<${NotOfArchive} />`;
  return html`<${One} taskmanager=${taskmanager} />`;
}

function One({ taskmanager }) {
  const told = useLive(`/taskmanagers/health?${new URLSearchParams({ id: taskmanager })}`);
  const absent = missing(told, "the TaskManager");
  if (absent || !told) return html`<${ProcessFrame} taskmanager=${taskmanager} tab="">${absent}<//>`;
  const { body } = told;
  const one = body.taskmanagers[0] && { ...body.taskmanagers[0], now: body.now };
  const gone = body.lost[0];
  return html`
    <${ProcessFrame} taskmanager=${taskmanager} tab="">
      ${one && html`<${There} one=${one} />`}
      ${gone && html`<${Gone} gone=${gone} />`}
      ${!one && !gone && html`<p class="banner bad" role="alert">This driver knows no TaskManager <code>${taskmanager}</code>. <a href=${to(["taskmanagers"])}>All TaskManagers</a></p>`}
      ${(one || gone) && html`<${Files} path=${`/taskmanagers/${encodeURIComponent(taskmanager)}`} page=${["taskmanagers", taskmanager]} noun="TaskManager" />`}
    <//>
  `;
}

function Gone({ gone }) {
  return html`
    <div class="banner bad" role="status">
      <p>This TaskManager is gone since <${Moment} at=${gone.heard} />, when it was last heard. It ran for ${duration(gone.heard - gone.since)} on ${gone.host}.</p>
      <pre class="reason">${gone.reason}</pre>
    </div>
    <p><a href=${to(["jobs", gone["job-id"]])}>${gone["job-name"]}</a></p>
  `;
}

function There({ one }) {
  const told = useLive(`/slots?jobid=${one["job-id"]}`);
  const box = told?.body?.taskmanagers.find((/** @type {any} */ other) => other.id === one.id);
  return html`
    <${Card} title="Process">
      <${Facts} facts=${factsOf(one)} />
      <${Over} text=${PROCESS_OVER} />
      <div class="row">
        <span class="quiet">Job</span><a href=${to(["jobs", one["job-id"]])}>${one["job-name"]}</a>
        ${box?.spark && html`<${Spark} spark=${box.spark} />`}
      </div>
    <//>
    <${Subtasks} told=${told} box=${box} one=${one} />
  `;
}

/** @returns {[string, any, string?][]} */
function factsOf(/** @type {any} */ one) {
  return [
    ["CPU", html`<${Cpu} one=${one} />`, "Share of all cores of its machine"],
    ["Resident memory", html`<${Memory} one=${one} />`],
    ["Arrow's memory", html`<${Figure} value=${one.arrow} kind="bytes" />`, "Of it, what Arrow's columns and buffers take"],
    ["Network buffers free", html`<${Buffers} one=${one} />`],
    ["Garbage collection", html`<${Figure} value=${one.garbage} kind="share" />`, "Share of the time that Python's collector takes"],
    ["Collections", html`<${Figure} value=${one.collections} kind="number" />`],
    ["Threads", html`<${Figure} value=${one.threads} kind="number" />`],
    ["Open files", html`<${Figure} value=${one["files-open"]} kind="number" />`],
    ["Slots free", `${exact(one["slots-free"])} of ${exact(one["slots-total"])}`],
    ["Last heard", html`<${Heard} one=${one} />`],
    ["There for", duration(one.now - one.since)],
    ["Host", `${one.host}, process ${one.pid}`, `${one.cores} cores, data port ${one["data-port"]}`],
  ];
}

function Spark({ spark }) {
  const executor = spark.executor === null ? "Spark executor" : `Spark executor ${spark.executor}`;
  const place = `Spark stage ${spark.stage}, partition ${spark.partition}, attempt ${spark["task-attempt"]}`;
  return html`
    <span>${spark["executor-page"] ? html`<a href=${spark["executor-page"]} rel="noreferrer">${executor}</a>` : executor}</span>
    <span>${spark["stage-page"] ? html`<a href=${spark["stage-page"]} rel="noreferrer">${place}</a>` : place}</span>
    ${!spark["executor-page"] && html`<span class="quiet">Spark shows no pages here: spark.ui.enabled is false.</span>`}
  `;
}

const COLUMNS = [
  {
    title: "Subtask",
    isName: true,
    value: (one) => `${one["vertex-name"]} ${String(one.subtask).padStart(6, "0")}`,
    cell: (one) => html`<a href=${to(["jobs", one.job, "vertices", one["vertex-id"]], { subtask: one.subtask })}>${shortName(one["vertex-name"])} ${one.subtask}</a>`,
  },
  { title: "Attempt", isNumber: true, value: (one) => one.attempt, cell: (one) => one.attempt },
  { title: "State", value: (one) => one.state, cell: (one) => html`<${State} state=${one.state} />` },
  { title: "Busy", value: (one) => one.busy, cell: (one) => html`<${Share} value=${one.busy} kind="busy" />` },
  { title: "Slot", cell: (one) => one.slot },
];

function Subtasks({ told, box, one }) {
  const absent = missing(told, "the subtasks");
  if (absent) return absent;
  if (told.body.folded) {
    return html`<p class="quiet">The job has ${exact(told.body.total)} slots, which are too many to list. The pages of its vertices have all subtasks.</p>`;
  }
  const slots = box?.slots ?? [];
  const rows = slots.flatMap((/** @type {any} */ slot, /** @type {number} */ place) =>
    slot.subtasks.map((/** @type {any} */ subtask) => ({ ...subtask, job: one["job-id"], slot: `${place + 1} (${slot["slot-sharing-group"]})` })),
  );
  const total = slots.reduce((/** @type {number} */ sum, /** @type {any} */ slot) => sum + slot.total, 0);
  return html`
    <${Card} title="Subtasks that run here">
      <${Table}
        caption="Subtasks of the TaskManager" columns=${COLUMNS} rows=${rows} first="Busy"
        keyOf=${(/** @type {any} */ row) => `${row["vertex-id"]}-${row.subtask}`} empty="No subtask is here."
      />
      <${Bound} shown=${rows.length} total=${total} noun="subtasks" why="the busiest" />
      <${Over} />
    <//>
  `;
}
