// @ts-check
/** Which subtasks of a vertex wait for those behind them, how much, and where it goes. The limits are Flink's: 10 % and 50 %. */

import { to } from "../../base/address.js";
import { exact, share } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Card, Facts, missing, Over, Share } from "../../parts/common.js";
import { pageOf, Pages } from "../../parts/pages.js";
import { Sparkline } from "../../parts/charts/spark.js";
import { Table } from "../../parts/table.js";
import { VertexFrame } from "./frame.js";

const FIGURES = "backPressuredTimeMsPerSecond.max,backPressuredTimeMsPerSecond.mean";
const MINUTE_MS = 60_000;
/** A smaller change of the mean, from one minute to the one three minutes later, is none. */
const NOTABLE = 0.05;

/** @type {Record<string, [word: string, kind: string, sign: string, meaning: string]>} */
const LEVELS = {
  ok: ["OK", "good", "\u2713", "up to 10 % of the time"],
  low: ["LOW", "waiting", "\u25d4", "more than 10 %, up to 50 % of the time"],
  high: ["HIGH", "bad", "\u2715", "more than 50 % of the time"],
};

/** @param {{ job: string, vertex: string, query: Record<string, string>, config: any }} props */
export function Page({ job, vertex, query, config }) {
  return html`
    <${VertexFrame} job=${job} vertex=${vertex} tab="backpressure" config=${config}>
      ${config.features?.["web-history"]
        ? html`<p class="banner">An archive has no back pressure: it is measured while tasks run.</p>`
        : html`<${Pressure} job=${job} vertex=${vertex} query=${query} />`}
    <//>
  `;
}

function Level({ level }) {
  const [word, kind, sign, meaning] = LEVELS[level];
  return html`<span class="badge ${kind}" data-sign=${sign} title=${meaning}>${word}</span>`;
}

function Pressure({ job, vertex, query }) {
  const path = `/jobs/${job}/vertices/${vertex}`;
  const told = useLive(`${path}/pressure?page=${pageOf(query)}`);
  const past = useLive(`${path}/history?get=${FIGURES}`);
  const absent = missing(told, "the back pressure");
  if (absent || !told) return absent;
  const { body } = told;
  if (body.level === null) return html`<p class="quiet">No subtask runs and has reported, so that its back pressure is not known.</p>`;
  const pages = html`<${Pages} page=${body.page} pages=${body.pages} total=${body.total} size=${50} noun="subtasks" />`;
  return html`
    <${Card} title="Back pressure of the vertex">
      <${Facts}
        facts=${[
          ["Worst subtask", html`<${Level} level=${body.level} />`, "The worst subtask decides, as in Flink"],
          ...Object.entries(body.levels).map(([level, number]) => [LEVELS[level][0], exact(/** @type {number} */ (number)), LEVELS[level][3]]),
          ...(body.unknown ? [["not known", exact(body.unknown), "They do not run, or have not reported yet"]] : []),
          ["Last minutes", html`<${Trend} past=${past?.body} />`, "The mean of the last minute, against that of the minute three minutes before"],
        ]}
      />
      ${past?.body && html`<${Past} body=${past.body} />`}
      <${Over} text="The levels are those of the last minute. The line has a value for each second." />
    <//>
    <${Card} title="Subtasks, worst first" more=${pages}>
      <${Table} caption="Back pressure of subtasks" columns=${columnsOf(job, vertex)} rows=${body.subtasks} sorted=${AS_TOLD} keyOf=${(/** @type {any} */ one) => one.subtask} />
      <${Over} />
    <//>
  `;
}

const AS_TOLD = { by: "", isDescending: false, choose: () => {} };

function columnsOf(/** @type {string} */ job, /** @type {string} */ vertex) {
  return [
    { title: "Subtask", isName: true, cell: (one) => html`<a href=${to(["jobs", job, "vertices", vertex], { subtask: one.subtask })}>${one.subtask}</a>` },
    { title: "Level", cell: (one) => html`<${Level} level=${one.level} />` },
    { title: "Back-pressured", cell: (one) => html`<${Share} value=${one["back-pressured"]} kind="blocked" />` },
    { title: "Busy", cell: (one) => html`<${Share} value=${one.busy} kind="busy" />` },
    { title: "Idle", cell: (one) => html`<${Share} value=${one.idle} kind="idle" />` },
    { title: "Waiting to be sent", isNumber: true, hint: "Buffers that wait for the consumers", cell: (one) => exact(one["queued-out"]) },
    { title: "Place", cell: (one) => one.endpoint },
  ];
}

const sharesOf = (/** @type {any} */ past, /** @type {string} */ name) =>
  past.figures[name].map((/** @type {number | null} */ one) => (one === null ? null : one / 1000));

function Past({ body }) {
  const [worst, mean] = FIGURES.split(",").map((name) => sharesOf(body, name));
  return html`<${Sparkline} times=${body.timestamps} values=${worst} others=${mean} label="Back pressure of the worst subtask; the thin line is the mean" />`;
}

/** Where it goes, as an arrow and in words. */
function Trend({ past }) {
  const change = past ? changeOf(past) : null;
  if (change === null) return html`<span class="quiet" title="There is no history of four minutes yet">n/a</span>`;
  const [sign, word] = change > NOTABLE ? ["\u2197", "rising"] : change < -NOTABLE ? ["\u2198", "falling"] : ["\u2192", "steady"];
  return html`<span><b aria-hidden="true">${sign}</b> ${word}${word !== "steady" && ` by ${share(Math.abs(change))}`}</span>`;
}

/** The mean of the last minute minus that of the minute three minutes before; null: one of them is not known. */
function changeOf(/** @type {any} */ past) {
  const shares = sharesOf(past, FIGURES.split(",")[1]);
  const mean = (/** @type {number} */ from, /** @type {number} */ until) => {
    const some = shares.filter((/** @type {number | null} */ one, /** @type {number} */ place) => one !== null && past.timestamps[place] > from && past.timestamps[place] <= until);
    return some.length ? some.reduce((/** @type {number} */ sum, /** @type {number} */ one) => sum + one, 0) / some.length : null;
  };
  const now = mean(past.now - MINUTE_MS, past.now);
  const before = mean(past.now - 4 * MINUTE_MS, past.now - 3 * MINUTE_MS);
  return now === null || before === null ? null : now - before;
}
