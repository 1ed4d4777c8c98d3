// @ts-check
/** How many subtasks the vertices have and may have, the rescales that there were, and what the autoscaler thinks. */

import { duration, exact, rate, UNKNOWN } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Bound, Card, Facts, missing, Moment, State } from "../../parts/common.js";
import { Table } from "../../parts/table.js";
import { JobFrame } from "./frame.js";

export function Page({ job, config }) {
  const isArchive = config.features?.["web-history"];
  return html`
    <${JobFrame} job=${job} tab="rescales" config=${config}>
      ${!isArchive && html`<${Bounds} job=${job} />`}
      <${Rescales} job=${job} />
      ${!isArchive && html`<${Autoscaler} job=${job} />`}
    <//>
  `;
}

/** What the vertices may have. A job that has ended, or cannot be rescaled, has no bounds. */
function Bounds({ job }) {
  const told = useLive(`/jobs/${job}/resource-requirements`);
  const graph = useLive(`/jobs/${job}/graph`);
  if (told?.body == null || graph?.body == null) return null;
  const columns = [
    { title: "Vertex", isName: true, cell: (/** @type {any} */ one) => one.name },
    { title: "Now", isNumber: true, cell: (/** @type {any} */ one) => exact(one.parallelism) },
    { title: "At least", isNumber: true, cell: (/** @type {any} */ one) => exact(told.body[one.id]?.parallelism.lowerBound) },
    { title: "At most", isNumber: true, cell: (/** @type {any} */ one) => exact(told.body[one.id]?.parallelism.upperBound) },
  ];
  return html`
    <${Card} title="Parallelism">
      <${Table} columns=${columns} rows=${graph.body.nodes} caption="Parallelism of the vertices" keyOf=${(/** @type {any} */ one) => one.id} />
    <//>
  `;
}

function Rescales({ job }) {
  const told = useLive(`/jobs/${job}/rescales/history`);
  const counts = useLive(`/jobs/${job}/rescales/overview`)?.body?.rescalesCounts;
  if (told?.status === 404 && told.body === null) {
    return html`<p class="quiet" role="status">Nobody has asked to rescale this job.</p>`;
  }
  const absent = missing(told, "the rescales");
  if (absent || !told) return absent;
  // An archive answers with the error as it is.
  const rescales = Array.isArray(told.body) ? told.body : [];
  const total = counts ? counts.completed + counts.failed + counts.ignored + counts.inProgress : rescales.length;
  return html`
    ${counts &&
    html`<${Facts}
      facts=${[
        ["Completed", exact(counts.completed)],
        ["Failed", exact(counts.failed)],
        ["Without effect", exact(counts.ignored), "for example because other bounds were asked for before it was done"],
        ["Under way", exact(counts.inProgress)],
      ]}
    />`}
    ${rescales.length === 0 && html`<p class="quiet" role="status">${total > 0 ? "None of the rescales is kept." : "The job has not been rescaled."}</p>`}
    <${Bound} shown=${rescales.length} total=${total} noun="rescales" why="the newest" />
    ${rescales.map((/** @type {any} */ one) => html`<${Rescale} key=${one.rescaleUuid} one=${one} />`)}
  `;
}

const CAUSES = /** @type {Record<string, string>} */ ({
  INITIAL_SCHEDULE: "The job has begun",
  UPDATE_REQUIREMENT: "Other bounds were asked for",
  NEW_RESOURCE_AVAILABLE: "There were more slots",
  RECOVERABLE_FAILOVER: "The job restarts after a failure",
});
const ENDS = /** @type {Record<string, string>} */ ({
  SUCCEEDED: "done",
  EXCEPTION_OCCURRED: "failed",
  RESOURCE_REQUIREMENTS_UPDATED: "other bounds were asked for before it was done",
  NO_RESOURCES_OR_PARALLELISMS_CHANGE: "nothing was to change with the slots that there are",
  JOB_FAILOVER_RESTARTING: "the job restarted before it was done",
  JOB_FINISHED: "the job finished before it was done",
  JOB_FAILED: "the job failed before it was done",
  JOB_CANCELED: "the job was cancelled before it was done",
});

function Rescale({ one }) {
  const state = one.terminalState ?? "IN_PROGRESS";
  const errors = one.schedulerStates.map((/** @type {any} */ span) => span.stringifiedException).filter(Boolean);
  const changes = Object.values(one.vertices).filter((change) => change.preRescaleParallelism !== change.postRescaleParallelism || !one.terminalState);
  const parallelism = (/** @type {number | null} */ value) => (value === null ? UNKNOWN : exact(value));
  const columns = [
    { title: "Vertex", isName: true, cell: (/** @type {any} */ change) => change.jobVertexName },
    { title: "Before", isNumber: true, cell: (/** @type {any} */ change) => parallelism(change.preRescaleParallelism) },
    { title: "After", isNumber: true, cell: (/** @type {any} */ change) => parallelism(change.postRescaleParallelism) },
    { title: "At least", isNumber: true, cell: (/** @type {any} */ change) => exact(change.sufficientParallelism) },
    { title: "At most", isNumber: true, cell: (/** @type {any} */ change) => exact(change.desiredParallelism) },
  ];
  return html`
    <${Card} title=${CAUSES[one.triggerCause] ?? one.triggerCause} more=${html`<${State} state=${state} />`}>
      <${Facts}
        facts=${[
          ["Began", html`<${Moment} at=${one.startTimestampInMillis} />`],
          ["Took", one.endTimestampInMillis === null ? "it is under way" : duration(one.endTimestampInMillis - one.startTimestampInMillis)],
          ["End", one.terminatedReason === null ? UNKNOWN : (ENDS[one.terminatedReason] ?? one.terminatedReason)],
          ...one.schedulerStates.map((/** @type {any} */ span) => [span.state, span.durationInMillis === null ? "now" : duration(span.durationInMillis), "how long the scheduler was in this state"]),
        ]}
      />
      ${errors.map((/** @type {string} */ error) => html`<pre class="bad-text">${error}</pre>`)}
      <${Table} columns=${columns} rows=${changes} caption="What the vertices got" empty="No vertex has more or fewer subtasks." keyOf=${(/** @type {any} */ change) => change.jobVertexId} />
    <//>
  `;
}

/** Nothing where the job has none. */
function Autoscaler({ job }) {
  const told = useLive(`/jobs/${job}/autoscaler`);
  const graph = useLive(`/jobs/${job}/graph`);
  if (told === null || told.body === null) return null;
  const { evaluation, decisions, interval } = told.body;
  const names = new Map((graph?.body?.nodes ?? []).map((/** @type {any} */ one) => [one.id, one.name]));
  return html`
    <${Card} title="Autoscaler" more=${html`<span class="quiet">looks every ${duration(interval)}</span>`}>
      <${Evaluation} evaluation=${evaluation} names=${names} />
      ${decisions.map((/** @type {any} */ one) => html`<${Decision} key=${one.timestamp} one=${one} />`)}
    <//>
  `;
}

function Evaluation({ evaluation, names }) {
  if (evaluation === null) return html`<p class="quiet" role="status">It has not measured long enough to decide anything.</p>`;
  const bound = (/** @type {number | null} */ value) => (value === null ? "any" : rate(value));
  const columns = [
    { title: "Vertex", isName: true, cell: (/** @type {any} */ one) => names.get(one.id) ?? one.id },
    { title: "Parallelism", isNumber: true, cell: (/** @type {any} */ one) => exact(one.parallelism) },
    { title: "Could process", isNumber: true, hint: "records per second of all subtasks, if they were busy all the time", cell: (/** @type {any} */ one) => rate(one.capacity) },
    { title: "Has to process", isNumber: true, hint: "records per second that arrive", cell: (/** @type {any} */ one) => rate(one["target-rate"]) },
    { title: "To catch up", isNumber: true, cell: (/** @type {any} */ one) => rate(one["catch-up-rate"]) },
    { title: "Stays between", isNumber: true, hint: "as long as what it could process lies between them, nothing changes", cell: (/** @type {any} */ one) => `${bound(one.bounds[0])} \u2013 ${bound(one.bounds[1])}` },
  ];
  return html`
    <p class="quiet">Measured until <${Moment} at=${evaluation.timestamp} />${evaluation.backlog ? "; the job works off a backlog" : ""}.</p>
    <${Table} columns=${columns} rows=${evaluation.vertices} caption="What the autoscaler has measured" keyOf=${(/** @type {any} */ one) => one.id} />
  `;
}

function Decision({ one }) {
  const became = one.applied ? outcomeOf(one.outcome) : `a recommendation only: ${one["held-by"]}`;
  return html`
    <article class="decision" aria-label="A decision of the autoscaler">
      <h3><${Moment} at=${one.timestamp} />: ${exact(one.slots.before)} to ${exact(one.slots.after)} slots; ${became}</h3>
      <ul>
        ${one.changes.map((/** @type {any} */ change) => html`<li>'${change.name}' from ${exact(change.before)} to ${exact(change.after)} subtasks: ${change.reason}</li>`)}
        ${one.events.map((/** @type {any} */ event) => html`<li class="quiet">${event.text}</li>`)}
      </ul>
    </article>
  `;
}

function outcomeOf(/** @type {any} */ outcome) {
  if (outcome === null) return "under way";
  return outcome.refusal ? `refused: ${outcome.refusal}` : `done after ${duration(outcome.took)}`;
}
