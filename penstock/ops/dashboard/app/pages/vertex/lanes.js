// @ts-check
/** How each subtask of a vertex has spent the last ten minutes: busy, back-pressured or idle. */

import { change, to } from "../../base/address.js";
import { duration, exact } from "../../base/format.js";
import { html, useState } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Bound, Card, missing, Moment, Over, Share, State } from "../../parts/common.js";
import { Lanes } from "../../parts/charts/share_lanes.js";
import { Table } from "../../parts/table.js";
import { VertexFrame } from "./frame.js";

const SORTS = { busy: "busy", "back-pressured": "back-pressured" };

/** @param {{ job: string, vertex: string, query: Record<string, string>, config: any }} props */
export function Page({ job, vertex, query, config }) {
  return html`
    <${VertexFrame} job=${job} vertex=${vertex} tab="lanes" config=${config}>
      ${config.features?.["web-history"]
        ? html`<p class="banner">An archive has no lanes: a driver keeps them for ten minutes.</p>`
        : html`<${Subtasks} job=${job} vertex=${vertex} query=${query} />`}
    <//>
  `;
}

function Subtasks({ job, vertex, query }) {
  const sort = query.sort in SORTS ? query.sort : "busy";
  const told = useLive(`/jobs/${job}/vertices/${vertex}/lanes?sort=${sort}`);
  const absent = missing(told, "the lanes");
  if (absent || !told) return absent;
  const { body } = told;
  if (body.why.subtasks) return html`<p class="quiet">There are no lanes: ${body.why.subtasks}.</p>`;
  const order = html`<label class="row">
    First those that are most
    <select value=${sort} onChange=${(/** @type {any} */ event) => change({ sort: event.currentTarget.value })}>
      ${Object.entries(SORTS).map(([name, title]) => html`<option value=${name}>${title}</option>`)}
    </select>
  </label>`;
  return html`
    <${Card} title="The last ten minutes" more=${order}>
      <${Drawing} body=${body} query=${query} />
      <${Bound} shown=${body.shown} total=${body.total} noun="subtasks" why=${`those that are most ${sort} now`} />
    <//>
    <${Card} title="In numbers">
      <${Table} caption="Time of subtasks" columns=${columnsOf(job, vertex)} rows=${body.subtasks} sorted=${AS_TOLD} keyOf=${(/** @type {any} */ one) => one.subtask} />
      <${Over} text=${`Now: of the newest ${duration(body.step)}. Mean: over the time that is shown.`} />
    <//>
  `;
}

const AS_TOLD = { by: "", isDescending: false, choose: () => {} };

function Drawing({ body, query }) {
  const [seen, setSeen] = useState(/** @type {import("../../parts/charts/share_lanes.js").Cell | null} */ (null));
  const { timestamps, subtasks } = body;
  if (timestamps.length === 0) return html`<p class="quiet">No subtask has reported yet.</p>`;
  const cell = seen ?? pinned(body, query);
  const choose = (/** @type {import("../../parts/charts/share_lanes.js").Cell} */ one) => change({ subtask: subtasks[one.row].subtask, at: timestamps[one.step] });
  return html`
    <p class="row quiet">
      <span><i class="lane-sign busy"></i> busy</span><span><i class="lane-sign blocked"></i> back-pressured</span><span><i class="lane-sign idle"></i> idle</span>
      <span><i class="lane-sign"></i> not known</span><span title=${body.why.aligning}>aligning: n/a, ${body.why.aligning}</span>
    </p>
    <${Lanes}
      lanes=${subtasks} timestamps=${timestamps} cell=${cell} see=${setSeen} choose=${choose} begin=${`${duration(body.now - timestamps[0])} ago`}
      label="Lanes of the subtasks. Arrows go through time and subtasks, Enter keeps one in the address. The table below has the numbers."
    />
    <p class="lane-told" role="status">${cell ? html`<${Told} body=${body} cell=${cell} />` : html`<span class="quiet">Point at a lane to see its numbers.</span>`}</p>
  `;
}

/** The subtask and the moment that the address names, if they are in sight. */
function pinned(/** @type {any} */ body, /** @type {Record<string, string>} */ query) {
  if (!query.at) return null;
  const row = body.subtasks.findIndex((/** @type {any} */ one) => String(one.subtask) === query.subtask);
  const step = body.timestamps.indexOf(Number(query.at));
  return row >= 0 && step >= 0 ? { row, step } : null;
}

function Told({ body, cell }) {
  const lane = body.subtasks[cell.row];
  const at = body.timestamps[cell.step];
  if (!lane || at === undefined) return null;
  const busy = lane.busy[cell.step];
  const blocked = lane["back-pressured"][cell.step];
  const text = busy === null ? "not known" : `busy ${busy} %, back-pressured ${blocked} %, idle ${Math.max(0, 100 - busy - blocked)} %`;
  return html`<b>Subtask ${lane.subtask}</b> at <${Moment} at=${at} />, for ${duration(body.step)}: ${text}`;
}

/** The newest share that is known, and the mean of all that are. */
const newest = (/** @type {(number | null)[]} */ shares) => share(shares.findLast((one) => one !== null));
const share = (/** @type {number | null | undefined} */ percent) => (percent === null || percent === undefined ? null : percent / 100);

function mean(/** @type {(number | null)[]} */ shares) {
  const known = /** @type {number[]} */ (shares.filter((one) => one !== null));
  return known.length ? known.reduce((sum, one) => sum + one, 0) / known.length / 100 : null;
}

function columnsOf(/** @type {string} */ job, /** @type {string} */ vertex) {
  return [
    { title: "Subtask", isName: true, cell: (one) => html`<a href=${to(["jobs", job, "vertices", vertex], { subtask: one.subtask })}>${exact(one.subtask)}</a>` },
    { title: "State", cell: (one) => html`<${State} state=${one.state} />` },
    { title: "Attempt", isNumber: true, cell: (one) => one.attempt },
    { title: "Busy now", cell: (one) => html`<${Share} value=${newest(one.busy)} kind="busy" />` },
    { title: "Busy, mean", hint: "Over the time that is shown", cell: (one) => html`<${Share} value=${mean(one.busy)} kind="busy" />` },
    { title: "Back-pressured now", cell: (one) => html`<${Share} value=${newest(one["back-pressured"])} kind="blocked" />` },
    { title: "Back-pressured, mean", hint: "Over the time that is shown", cell: (one) => html`<${Share} value=${mean(one["back-pressured"])} kind="blocked" />` },
  ];
}
