// @ts-check
/** The metrics of one vertex: its figures over time on one axis, and below them any metric that one asks for. */

import { byteRate, bytes, duration, rate, share } from "../../base/format.js";
import { useHistory } from "../../base/history.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Chart, useCrosshair } from "../../parts/charts/chart.js";
import { Card, missing } from "../../parts/common.js";
import { Explorer } from "../../parts/charts/explorer.js";
import { DURATION_STEPS, shares } from "../../parts/charts/figures.js";
import { MarkList, useMarks } from "../../parts/charts/marks.js";
import { RangeBar, spanOf, windowOf } from "../../parts/charts/range.js";
import { isOfBatch, VertexFrame } from "./frame.js";

export function Page({ job, vertex, query, config }) {
  return html`
    <${VertexFrame} job=${job} vertex=${vertex} tab="metrics" config=${config}>
      <${Metrics} job=${job} vertex=${vertex} query=${query} isArchive=${Boolean(config.features?.["web-history"])} />
    <//>
  `;
}

function Metrics({ job, vertex, query, isArchive }) {
  const told = useLive(`/jobs/${job}`);
  const absent = missing(told, "the vertex");
  if (absent || !told) return absent;
  return html`
    ${isOfBatch(told.body)
      ? html`<p class="banner">The tasks of a BATCH job report when they end, so there are no figures over time.</p>`
      : html`<${OverTime} job=${job} vertex=${vertex} query=${query} end=${told.body["end-time"]} isArchive=${isArchive} />`}
    ${!isArchive && html`<${Explorer} job=${job} vertices=${told.body.vertices} query=${query} own=${vertex} />`}
  `;
}

const NOTHING = "nothing was reported";

/** @type {[title: string, format: (value: any) => string, lines: [name: string, figure: string, why: string][], steps?: number[]][]} */
const CHARTS = [
  ["Records per second", rate, [["in", "numRecordsInPerSecond", NOTHING], ["out", "numRecordsOutPerSecond", NOTHING]]],
  ["Bytes per second", byteRate, [["in", "numBytesInPerSecond", NOTHING], ["out", "numBytesOutPerSecond", NOTHING]]],
  ["Watermark lag", duration, [["lowest of the subtasks", "watermarkLag", "it has no watermark"]], DURATION_STEPS],
  ["Checkpoint duration", duration, [["slowest subtask", "checkpointDuration", "no checkpoint was complete"]], DURATION_STEPS],
  ["State size", bytes, [["all subtasks", "stateSize", "no checkpoint was complete"]]],
];

function OverTime({ job, vertex, query, end, isArchive }) {
  const history = useHistory(job, vertex, windowOf(query));
  const marks = useMarks(job);
  const crosshair = useCrosshair();
  if (history.isEmpty && history.error) return html`<p class="banner">There are no figures over time: ${history.error}</p>`;
  const span = spanOf(query, history, end);
  const nothing = history.version === 0 ? "Asking for the figures\u2026" : undefined;
  const of = { times: history.times(), span, crosshair, marks, nothing, hasTimes: false };
  return html`
    <${RangeBar} query=${query} history=${history} span=${span} isArchive=${isArchive} />
    <${Card} title="Over time">
      <div>
        <${Chart} ...${of} title="Time of the subtasks, mean" series=${shares(history, vertex)} format=${share} top=${1} isStacked=${true} height=${90} />
        <${Chart} ...${of} title="Highest of the subtasks" series=${shares(history, vertex, "max").slice(1)} format=${share} top=${1} height=${90} />
        ${CHARTS.map(
          ([title, format, lines, steps], place) => html`
            <${Chart}
              key=${title} ...${of} title=${title} format=${format} steps=${steps} height=${100} hasTimes=${place === CHARTS.length - 1}
              series=${lines.map(([name, figure, why]) => ({ name, why, values: history.of(vertex, figure) }))}
            />
          `,
        )}
      </div>
    <//>
    <${MarkList} marks=${marks} span=${span} />
  `;
}
