// @ts-check
/** The checkpoints of a job: the last ones as a strip, one of them subtask by subtask, figures of all of them, and how they are taken. */

import { to } from "../../base/address.js";
import { bytes, count, duration, exact, UNKNOWN } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useFollowed, useLive } from "../../base/live.js";
import { Card, Facts, missing, Moment, State } from "../../parts/common.js";
import { Gantt } from "../../parts/charts/gantt.js";
import { Strip } from "../../parts/charts/strip.js";
import { Table } from "../../parts/table.js";
import { checkpointFacts } from "./checkpoint_config.js";
import { JobFrame } from "./frame.js";

export function Page({ job, query, config }) {
  return html`
    <${JobFrame} job=${job} tab="checkpoints" config=${config}>
      <${Checkpoints} job=${job} query=${query} />
    <//>
  `;
}

function Checkpoints({ job, query }) {
  const overview = useLive(`/jobs/${job}/checkpoints`);
  const strip = useLive(`/jobs/${job}/checkpoints/strip`);
  if (overview?.status === 404 && overview.body === null) return html`<p class="banner">${overview.errors[0]}</p>`;
  const absent = missing(overview, "the checkpoints");
  if (absent || !overview) return absent;
  const { latest } = overview.body;
  const ones = strip?.body?.checkpoints ?? [];
  const pinned = /^\d+$/.test(query.pin ?? "") ? Number(query.pin) : null;
  const shown = pinned ?? (strip?.body ? newestWorth(ones) : (overview.body.history[0]?.id ?? null));
  return html`
    <${Counts} body=${overview.body} givenUp=${strip?.body?.["given-up"] ?? 0} />
    <${Card} title="Last checkpoints">
      ${missing(strip, "the last checkpoints") ?? html`<${Strip} job=${job} body=${strip?.body} shown=${shown} restored=${latest.restored?.id} />`}
      <p class="quiet">Newest first; the width is the duration. S: savepoint.${latest.restored && html` \u21ba: the job was restored from it.`}</p>
    <//>
    <${Shown} key=${pinned} job=${job} shown=${shown} isPinned=${pinned !== null} restored=${latest.restored} />
    <div class="columns">
      <${Summary} body=${overview.body} />
      <${Configuration} job=${job} />
    </div>
  `;
}

/** Of what is followed: the newest one that has begun to be acknowledged, or has ended, and that the job needed. */
function newestWorth(/** @type {any[]} */ ones) {
  return (ones.find((one) => ["COMPLETED", "FAILED"].includes(one.state) || one.acknowledged > 0 || one.duration > 5000) ?? ones[0])?.id ?? null;
}

function Counts({ body, givenUp }) {
  const { counts, latest } = body;
  const failed = counts.failed - givenUp; // Flink has no other word for them.
  const { restored } = latest;
  return html`<${Facts}
    facts=${[
      ["Completed", exact(counts.completed)],
      ["Failed", failed > 0 ? html`<span class="bad-text">${exact(failed)}</span>` : 0],
      ...(givenUp ? [["Given up", exact(givenUp), "a restart, a newer checkpoint or the end of the job made them pointless"]] : []),
      ["In progress", exact(counts.in_progress)],
      ["Restored", exact(counts.restored), "how often attempts began with a checkpoint"],
      ["Last completed", latest.completed ? html`<${Moment} at=${latest.completed.latest_ack_timestamp} />` : "none yet"],
      ["Last savepoint", latest.savepoint ? html`<${Moment} at=${latest.savepoint.latest_ack_timestamp} />` : "none yet"],
      ["Restored from", restored ? html`${restored.is_savepoint ? "savepoint" : "checkpoint"} ${restored.id}, <${Moment} at=${restored.restore_timestamp} />` : "nothing: the job began anew"],
    ]}
  />`;
}

const FORGOTTEN = "Nothing more is known of it: the parts of the last checkpoints are kept, as many as web.checkpoints.history says.";

/** One checkpoint: the one that is pinned by the address, or the newest one. */
function Shown({ job, shown, isPinned, restored }) {
  const path = shown === null ? null : `/jobs/${job}/checkpoints/details/${shown}`;
  const details = useFollowed(path, !isPinned);
  const gantt = useFollowed(path && `${path}/gantt`, !isPinned);
  if (shown === null) return null;
  const isForgotten = details?.status === 404 && details.body === null;
  const absent = isForgotten ? html`<p class="quiet" role="status">${FORGOTTEN}</p>` : missing(details, `checkpoint ${shown}`);
  const body = details?.body;
  const id = body?.id ?? shown;
  const follow = html`<a href=${to(["jobs", job, "checkpoints"])}>Follow the newest one</a>`;
  const pin = html`<a href=${to(["jobs", job, "checkpoints"], { pin: id })}>Pin this one</a>`;
  const title = body?.is_savepoint ? `Savepoint ${id}` : `Checkpoint ${id}`;
  return html`
    <${Card} title=${isPinned ? `${title}, pinned` : `${title}, the newest one`} more=${isPinned ? follow : pin}>
      ${absent ?? html`<${Details} body=${body} state=${gantt?.body?.state ?? body?.status} isRestored=${restored?.id === id} />`}
      ${!absent && (missing(gantt, "its subtasks") ?? html`<${Gantt} job=${job} body=${gantt?.body} />`)}
    <//>
  `;
}

const KINDS = /** @type {Record<string, string>} */ ({
  CHECKPOINT: "aligned",
  UNALIGNED_CHECKPOINT: "unaligned",
  SAVEPOINT: "savepoint",
  SYNC_SAVEPOINT: "savepoint that ends the job",
});

function Details({ body, state, isRestored }) {
  const { failure_message: failure } = body;
  const isGivenUp = state === "GIVEN_UP";
  return html`
    ${failure && isGivenUp && html`<p class="quiet">The job needed it no more at <${Moment} at=${body.failure_timestamp} />: ${failure}</p>`}
    ${failure && !isGivenUp && html`<p class="bad-text" role="alert">\u2715 It failed at <${Moment} at=${body.failure_timestamp} />: ${failure}</p>`}
    <${Facts}
      facts=${[
        ["State", html`<${State} state=${state} />`],
        ["Kind", KINDS[body.checkpoint_type] ?? body.checkpoint_type],
        ["Begun", html`<${Moment} at=${body.trigger_timestamp} />`],
        ["Duration", duration(body.end_to_end_duration)],
        ["Acknowledged", `${exact(body.num_acknowledged_subtasks)} of ${exact(body.num_subtasks)} subtasks`],
        ["State size", bytes(body.state_size)],
        ["Written", bytes(body.checkpointed_size), "what was new in it"],
        ["In flight", bytes(body.persisted_data), "records on their way that it keeps"],
        ...(body.external_path ? [["Folder", html`<code>${body.external_path}</code>${body.discarded ? " (removed since)" : ""}`]] : []),
        ...(isRestored ? [["Restored", "the job began with it last"]] : []),
      ]}
    />
  `;
}

/** @type {[key: string, title: string, format: (value: any) => string][]} */
const FIGURES = [
  ["end_to_end_duration", "Duration", duration],
  ["state_size", "State size", bytes],
  ["checkpointed_size", "Written", bytes],
  ["processed_data", "Processed while aligning", bytes],
  ["persisted_data", "In flight", bytes],
];
const COLUMNS = ["min", "avg", "p50", "p90", "p95", "p99", "p999", "max"];
const TITLES = /** @type {Record<string, string>} */ ({ min: "Minimum", avg: "Average", p50: "Median", p90: "90 %", p95: "95 %", p99: "99 %", p999: "99.9 %", max: "Maximum" });

function Summary({ body }) {
  const rows = FIGURES.filter(([key]) => body.summary[key]);
  const isKnown = body.counts.completed > 0;
  const cell = (/** @type {any} */ value, /** @type {(value: any) => string} */ format) => (!isKnown || value === "NaN" ? UNKNOWN : format(value));
  const columns = [
    { title: "Figure", isName: true, cell: (row) => row[1] },
    ...COLUMNS.map((name) => ({ title: TITLES[name], isNumber: true, cell: ([key, , format]) => cell(body.summary[key][name], format) })),
  ];
  return html`
    <${Card} title="All completed checkpoints" more=${html`<span class="quiet">${count(body.counts.completed)}</span>`}>
      <${Table} caption="Figures of completed checkpoints" columns=${columns} rows=${rows} keyOf=${(row) => row[0]} />
      ${!isKnown && html`<p class="quiet">${UNKNOWN}: no checkpoint is complete yet.</p>`}
    <//>
  `;
}

function Configuration({ job }) {
  const told = useLive(`/jobs/${job}/checkpoints/config`);
  return html`
    <${Card} title="How checkpoints are taken" more=${html`<a href=${to(["jobs", job, "options"], { filter: "checkpoint" })}>All options</a>`}>
      ${missing(told, "how checkpoints are taken") ?? html`<${Facts} facts=${checkpointFacts(told?.body)} />`}
    <//>
  `;
}
