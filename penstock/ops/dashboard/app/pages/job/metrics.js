// @ts-check
/** The metrics of a job: its usual figures over time, all on one time axis, and below them any metric that one asks for. */

import { change, to } from "../../base/address.js";
import { bytes, duration, rate, share } from "../../base/format.js";
import { useHistory } from "../../base/history.js";
import { html, useRef } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Chart, useCrosshair } from "../../parts/charts/chart.js";
import { Bound, Card, missing } from "../../parts/common.js";
import { Explorer } from "../../parts/charts/explorer.js";
import { DURATION_STEPS, lines, shares, total } from "../../parts/charts/figures.js";
import { MarkList, useMarks } from "../../parts/charts/marks.js";
import { RangeBar, spanOf, windowOf } from "../../parts/charts/range.js";
import { JobFrame } from "./frame.js";

/** More vertices than these, or more lines, make no chart that anybody can read. */
const MOST_VERTICES = 12;
const MOST_LINES = 6;
const OF_VERTICES = [
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "watermarkLag",
  "busyTimeMsPerSecond.mean",
  "backPressuredTimeMsPerSecond.mean",
  "idleTimeMsPerSecond.mean",
];
const OF_CHECKPOINTS = ["stateSize", "checkpointDuration"];
const NO_LAG = "it has no watermark";
const NO_CHECKPOINT = "no checkpoint was complete";

export function Page({ job, query, config }) {
  return html`
    <${JobFrame} job=${job} tab="metrics" config=${config}>
      <${Metrics} job=${job} query=${query} isArchive=${Boolean(config.features?.["web-history"])} />
    <//>
  `;
}

function Metrics({ job, query, isArchive }) {
  const told = useLive(`/jobs/${job}`);
  const absent = missing(told, "the vertices");
  if (absent || !told) return absent;
  if (told.body["job-type"] === "BATCH") {
    return html`<p class="banner">
      The subtasks of a BATCH job report when they end, so there are no figures over time.
      <a href=${to(["jobs", job])}>The first page of the job</a> has their sums.
    </p>`;
  }
  return html`
    <${OverTime} job=${job} query=${query} body=${told.body} isArchive=${isArchive} />
    ${!isArchive && html`<${Explorer} job=${job} vertices=${told.body.vertices} query=${query} />`}
  `;
}

/** @param {{ job: string, query: Record<string, string>, body: any, isArchive: boolean }} props */
function OverTime({ job, query, body, isArchive }) {
  const window = windowOf(query);
  const chosen = useChosen(query, body);
  const only = isArchive || chosen.length < body.vertices.length ? chosen.map((one) => one.id) : [];
  const history = useHistory(job, null, window, { figures: OF_VERTICES, only });
  const checkpoints = useHistory(job, null, window, { figures: OF_CHECKPOINTS, only: isArchive ? only : [] });
  const marks = useMarks(job);
  const crosshair = useCrosshair();
  if (history.isEmpty && history.error) return html`<p class="banner">There are no figures over time: ${history.error}</p>`;
  const span = spanOf(query, history, body["end-time"]);
  const common = { span, crosshair, marks };
  const nothing = history.version === 0 ? "Asking for the figures\u2026" : undefined;
  const of = { ...common, nothing, times: history.times() };
  const sources = new Set(body.plan.nodes.filter((/** @type {any} */ one) => !one.inputs).map((/** @type {any} */ one) => one.id));
  const rates = lines(history, chosen, (vertex) => (sources.has(vertex.id) ? "numRecordsOutPerSecond" : "numRecordsInPerSecond"), "nothing was reported");
  const lags = lines(history, chosen, () => "watermarkLag", NO_LAG);
  const longest = total(checkpoints, "checkpointDuration", Math.max, { name: "slowest vertex", values: [], why: NO_CHECKPOINT });
  const size = total(checkpoints, "stateSize", (sum, one) => sum + one, { name: isArchive ? "vertices shown" : "all vertices", values: [], why: NO_CHECKPOINT });
  return html`
    <${RangeBar} query=${query} history=${history} span=${span} isArchive=${isArchive} />
    <${Choice} body=${body} chosen=${chosen} />
    <${Card} title="Throughput, watermarks and checkpoints">
      <div>
        <${Chart} ...${of} title="Records per second" series=${rates.slice(0, MOST_LINES)} format=${rate} hasTimes=${false} more=${bound(rates)} />
        <${Chart} ...${of} title="Watermark lag" series=${lags.slice(0, MOST_LINES)} format=${duration} steps=${DURATION_STEPS} hasTimes=${false} more=${bound(lags)} />
        <${Chart} ...${common} times=${checkpoints.times()} title="Checkpoint duration" series=${[longest]} format=${duration} steps=${DURATION_STEPS} hasTimes=${false} />
        <${Chart} ...${common} times=${checkpoints.times()} title="State size" series=${[size]} format=${bytes} />
      </div>
      <p class="quiet">Records that come in; of sources, those that go out.</p>
    <//>
    <${Stacks} job=${job} history=${history} chosen=${chosen} of=${of} />
    <${MarkList} marks=${marks} span=${span} />
  `;
}

const bound = (/** @type {any[]} */ all) => html`<${Bound} shown=${Math.min(all.length, MOST_LINES)} total=${all.length} noun="vertices" why="those with the highest values" />`;

/** How the subtasks of each vertex spend their time. */
function Stacks({ job, history, chosen, of }) {
  return html`
    <${Card} title="Busy, back-pressured and idle, mean over subtasks">
      <div>
        ${chosen.map(
          (/** @type {any} */ vertex, /** @type {number} */ place) => html`
            <${Chart}
              key=${vertex.id} ...${of} title=${vertex.name} series=${shares(history, vertex.id)} format=${share} top=${1} isStacked=${true} height=${76}
              hasTimes=${place === chosen.length - 1} more=${html`<a href=${to(["jobs", job, "vertices", vertex.id, "metrics"])}>All figures of this vertex</a>`}
            />
          `,
        )}
      </div>
    <//>
  `;
}

/** The vertices that the charts show: those of the address, else all, of many the ones that work or wait most. */
function useChosen(/** @type {Record<string, string>} */ query, /** @type {any} */ body) {
  const usual = useRef(/** @type {string[] | null} */ (null));
  const spent = (/** @type {any} */ vertex) => (vertex.metrics["accumulated-busy-time"] || 0) + (vertex.metrics["accumulated-backpressured-time"] || 0);
  const all = /** @type {any[]} */ (body.vertices);
  usual.current ??= [...all].sort((left, right) => spent(right) - spent(left)).slice(0, MOST_VERTICES).map((one) => one.id);
  const wanted = new Set(query.shown ? query.shown.split(",") : usual.current);
  const found = all.filter((one) => wanted.has(one.id));
  return (found.length ? found : all).slice(0, MOST_VERTICES);
}

/** Which vertices the charts show. */
function Choice({ body, chosen }) {
  const all = body.vertices;
  if (all.length < 2) return null;
  const ids = chosen.map((/** @type {any} */ one) => one.id);
  const toggle = (/** @type {string} */ id) => {
    const next = ids.includes(id) ? ids.filter((/** @type {string} */ one) => one !== id) : [...ids, id];
    change({ shown: next.join(",") });
  };
  return html`
    <details class="vertex-choice">
      <summary>Vertices shown: ${ids.length} of ${all.length}${all.length > MOST_VERTICES ? `, at most ${MOST_VERTICES} at a time` : ""}</summary>
      <fieldset>
        <legend class="unseen">Vertices shown</legend>
        ${all.map(
          (/** @type {any} */ one) => html`
            <label>
              <input type="checkbox" checked=${ids.includes(one.id)} disabled=${ids.length >= MOST_VERTICES && !ids.includes(one.id)} onChange=${() => toggle(one.id)} />
              ${one.name}
            </label>
          `,
        )}
      </fieldset>
    </details>
  `;
}
