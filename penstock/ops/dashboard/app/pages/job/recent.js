// @ts-check
/** What has just happened to a job: its throughput with what disturbed it, its last checkpoints and failures. */

import { to } from "../../base/address.js";
import { counted, rate } from "../../base/format.js";
import { useHistory } from "../../base/history.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Chart, useCrosshair } from "../../parts/charts/chart.js";
import { Card, missing, Moment } from "../../parts/common.js";
import { total } from "../../parts/charts/figures.js";
import { useMarks } from "../../parts/charts/marks.js";
import { spanOf } from "../../parts/charts/range.js";
import { Strip } from "../../parts/charts/strip.js";

const FIGURES = ["numRecordsInPerSecond", "numRecordsOutPerSecond"];
const SHOWN_FAILURES = 3;
const NOT_REPORTED = "nothing was reported";
const add = (/** @type {number} */ sum, /** @type {number} */ value) => sum + value;

/** Records of all sources and all sinks over the last ten minutes, on one axis with restarts, failures and rescales. */
export function Throughput({ job, nodes, ended }) {
  const sources = useHistory(job, null, "10m", { figures: FIGURES, only: idsOf(nodes, "source") });
  const sinks = useHistory(job, null, "10m", { figures: FIGURES, only: idsOf(nodes, "sink") });
  const crosshair = useCrosshair();
  const marks = useMarks(job);
  const lines = [
    total(sources, FIGURES[1], add, { name: "out of sources", colour: "var(--good)", dash: [], values: [], why: NOT_REPORTED }),
    total(sinks, FIGURES[0], add, { name: "into sinks", colour: "var(--busy)", dash: [6, 3], values: [], why: NOT_REPORTED }),
  ];
  const more = html`<a href=${to(["jobs", job, "metrics"])}>All charts</a>`;
  return html`
    <${Card} title="Throughput" more=${more}>
      <${Chart} title="Records per second" times=${sources.times()} series=${lines} format=${rate} span=${spanOf({}, sources, ended ?? 0)} marks=${marks} crosshair=${crosshair} />
    <//>
  `;
}

function idsOf(/** @type {any[]} */ nodes, /** @type {string} */ kind) {
  return nodes.filter((one) => one[kind]).map((one) => one.id);
}

/** The last checkpoints, as a strip. */
export function LastCheckpoints({ job }) {
  const told = useLive(`/jobs/${job}/checkpoints/strip`);
  const absent = missing(told, "the checkpoints");
  const more = html`<a href=${to(["jobs", job, "checkpoints"])}>All checkpoints</a>`;
  return html`
    <${Card} title="Last checkpoints" more=${more}>
      ${absent ?? html`<${Strip} job=${job} body=${told?.body} />`}
    <//>
  `;
}

/** The newest failures, each with the line of the program that raised it. */
export function LastFailures({ job }) {
  const told = useLive(`/jobs/${job}/exceptions/groups`);
  const absent = missing(told, "the failures");
  const known = told?.body?.groups ?? [];
  // A failure that came with another one tells nothing of its own.
  const groups = [...known].sort((one, other) => Number(other.root) - Number(one.root)).slice(0, SHOWN_FAILURES);
  const number = told?.body?.failures ?? 0;
  const more = number > 0 && html`<a href=${to(["jobs", job, "exceptions"])}>All ${counted(number, "failure")}</a>`;
  return html`
    <${Card} title="Last failures" more=${more}>
      ${absent}
      ${!absent && groups.length === 0 && html`<p class="quiet">Nothing has failed.</p>`}
      ${groups.map((one) => html`<${Failure} key=${one.fingerprint} job=${job} one=${one} />`)}
    <//>
  `;
}

function Failure({ job, one }) {
  const times = one.count > 1 ? `${one.count} times, last at ` : "at ";
  const subtask = one.subtask === null ? "" : `, subtask ${one.subtask}`;
  return html`
    <div class="failure">
      <a href=${to(["jobs", job, "exceptions"], { group: one.fingerprint })}>${one.headline}</a>
      ${one.line && html`<pre>${one.line.text ?? one.line.function}</pre>`}
      <p class="quiet">
        ${one.line && `${one.line.file.split("/").pop()}:${one.line.line} \u00b7 `}
        ${one.operator ?? one["vertex-name"] ?? "the job"}${subtask} \u00b7 ${times}<${Moment} at=${one.last} /> \u00b7 ${one.hint}
      </p>
    </div>
  `;
}
