// @ts-check
/** Where subtasks run: a box for each TaskManager, a cell for each slot, and in it the subtasks that share it. */

import { change, to } from "../base/address.js";
import { counted, exact, share } from "../base/format.js";
import { classes, html, useState } from "../base/html.js";
import { useLive } from "../base/live.js";
import { shortName } from "./chain.js";
import { Bound, Card, missing, Over, Share, State } from "./common.js";
import { Table } from "./table.js";

const MOST_BARS = 6;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** @typedef {{ box: any, slot: any, number: number }} Place one slot; `slot` null: it is free */

/** @param {{ query: Record<string, string>, job?: string }} props `job`: only its slots */
export function SlotMap({ query, job }) {
  const told = useLive(job === undefined ? "/slots" : `/slots?jobid=${job}`);
  const absent = missing(told, "the slots");
  if (absent || !told) return html`<${Card} title="Slots">${absent}<//>`;
  const { body } = told;
  if (body.total === 0 && body.wanted.length === 0) return null;
  const isByGroup = query.colour === "group";
  return html`
    <${Card} title="Slots" id="slots" more=${!body.folded && html`<${Choice} isByGroup=${isByGroup} />`}>
      ${body.wanted.map((/** @type {any} */ one) => html`<${Wanted} one=${one} />`)}
      ${body.folded ? html`<${Hosts} body=${body} />` : html`<${Boxes} body=${body} query=${query} isByGroup=${isByGroup} />`}
    <//>
  `;
}

function Choice({ isByGroup }) {
  const chosen = (/** @type {any} */ event) => change({ colour: event.currentTarget.value });
  return html`<label class="row">
    Colour
    <select value=${isByGroup ? "group" : ""} onChange=${chosen}>
      <option value="">busy</option>
      <option value="group">slot sharing group</option>
    </select>
  </label>`;
}

function Wanted({ one }) {
  const missingSlots = one.missing > 0 ? `${counted(one.missing, "slot")} missing` : "slots are being asked for";
  return html`<p class="banner">
    <a href=${to(["jobs", one["job-id"]])}>Job</a>: ${counted(one.subtasks, "subtask")} without a slot, ${missingSlots}.${one.reason && ` ${one.reason}`}
  </p>`;
}

function Boxes({ body, query, isByGroup }) {
  const [seen, setSeen] = useState("");
  const places = placesOf(body);
  const groups = [...new Set(places.flatMap((one) => (one.slot ? [one.slot["slot-sharing-group"]] : [])))].sort();
  const wanted = seen || query.slot;
  const shown = places.find((one) => nameOf(one) === wanted) ?? null;
  const moved = (/** @type {KeyboardEvent} */ event) => move(event);
  return html`
    <div class="slots" role="group" aria-label="Slots by TaskManager. Arrows move from slot to slot." onKeyDown=${moved} onMouseLeave=${() => setSeen("")}>
      ${body.taskmanagers.map(
        (/** @type {any} */ box, /** @type {number} */ at) => html`
          <${Box} key=${box.id} box=${box} places=${places.filter((one) => one.box === box)} groups=${isByGroup ? groups : null} pinned=${query.slot} see=${setSeen} isFirst=${at === 0} />
        `,
      )}
    </div>
    ${isByGroup && html`<p class="quiet row">${groups.map((name) => html`<span><b class="group-sign" data-group=${groups.indexOf(name) % 5}>${LETTERS[groups.indexOf(name) % 26]}</b> ${name}</span>`)}</p>`}
    <${Told} place=${shown} />
    <${Over} text=${BUSY_OVER} />
  `;
}

/** @returns {Place[]} */
function placesOf(/** @type {any} */ body) {
  return body.taskmanagers.flatMap((/** @type {any} */ box) => {
    const free = Array.from({ length: box["slots-free"] }, () => null);
    return [...box.slots, ...free].map((slot, place) => ({ box, slot, number: place + 1 }));
  });
}

const nameOf = (/** @type {Place} */ { box, number }) => `${box.id}/${number}`;

/** One cell at a time can be reached with Tab; arrows move among them. */
function move(/** @type {KeyboardEvent} */ event) {
  const ways = /** @type {Record<string, number>} */ ({ ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 });
  const way = ways[event.key];
  const all = [.../** @type {HTMLElement} */ (event.currentTarget).querySelectorAll("button")];
  const at = all.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
  if (!way || at < 0) return;
  event.preventDefault();
  all[(at + way + all.length) % all.length].focus();
}

function Box({ box, places, groups, pinned, see, isFirst }) {
  const spark = box.spark?.executor;
  return html`
    <div class=${classes("slot-box", box.late && "late")}>
      <div class="row">
        <a href=${to(["taskmanagers", box.id])}>${box.id}</a>
        ${box.late && html`<b class="bad-text">\u26a0 heartbeat late</b>`}
      </div>
      <div class="quiet">${box.host}${spark !== null && spark !== undefined && `, Spark executor ${spark}`}</div>
      <div class="cells">
        ${places.map((/** @type {Place} */ one, /** @type {number} */ at) => html`<${Cell} key=${one.number} place=${one} groups=${groups} isPinned=${pinned === nameOf(one)} see=${see} isStop=${isFirst && at === 0} />`)}
      </div>
    </div>
  `;
}

/** The most busy of the subtasks that share a slot; null: none has reported. */
const busyOf = (/** @type {any} */ slot) =>
  slot.subtasks.reduce((/** @type {number | null} */ most, /** @type {any} */ one) => (one.busy === null ? most : Math.max(most ?? 0, one.busy)), null);

function Cell({ place, groups, isPinned, see, isStop }) {
  const { box, slot, number } = place;
  const name = nameOf(place);
  const busy = slot && busyOf(slot);
  const group = slot && groups ? groups.indexOf(slot["slot-sharing-group"]) : -1;
  const sign = !slot ? "" : groups ? LETTERS[group % 26] : share(busy);
  const said = !slot ? "free" : `${counted(slot.total, "subtask")}, busy ${share(busy)}, group ${slot["slot-sharing-group"]}`;
  return html`
    <button
      class=${classes("cell", !slot && "free", slot && (groups ? "by-group" : "by-busy"), isPinned && "chosen")} data-group=${group % 5} tabindex=${isStop ? 0 : -1}
      style=${{ "--share": busy ?? 0 }} aria-pressed=${isPinned} aria-label=${`${box.id}, slot ${number}: ${said}`}
      onMouseEnter=${() => see(name)} onFocus=${() => see(name)} onBlur=${() => see("")} onClick=${() => change({ slot: isPinned ? null : name })}
    >
      <b aria-hidden="true">${sign}</b>
      ${slot && html`<span class="tenants" aria-hidden="true">${slot.subtasks.slice(0, MOST_BARS).map((/** @type {any} */ one) => html`<i style=${{ "--share": one.busy ?? 0 }}></i>`)}</span>`}
    </button>
  `;
}

/** What is in the slot to which one points, or which is chosen. */
function Told({ place }) {
  if (place === null) return html`<p class="quiet slot-told">Point at a slot, or choose one, to see what is in it.</p>`;
  const { box, slot, number } = place;
  return html`
    <div class="slot-told">
      <p><b>Slot ${number}</b> of ${box.id}${slot ? `, slot sharing group ${slot["slot-sharing-group"]}` : " is free"}</p>
      ${slot &&
      html`<ul class="tenant-list">
          ${slot.subtasks.map(
            (/** @type {any} */ one) => html`<li class="row">
              <a href=${to(["jobs", box["job-id"], "vertices", one["vertex-id"]], { subtask: one.subtask })}>${shortName(one["vertex-name"])} ${one.subtask}</a>
              <${State} state=${one.state} /><span class="slot-busy"><${Share} value=${one.busy} kind="busy" /></span>
            </li>`,
          )}
        </ul>
        <${Bound} shown=${slot.shown} total=${slot.total} noun="subtasks" why="the busiest" />`}
    </div>
  `;
}

const BUSY_OVER = "Busy: means of the last minute.";

const HOSTS = [
  { title: "Host", isName: true, value: (one) => one.host, cell: (one) => one.host },
  { title: "TaskManagers", isNumber: true, value: (one) => one.taskmanagers, cell: (one) => exact(one.taskmanagers) },
  { title: "Slots in use", isNumber: true, value: (one) => one["slots-total"] - one["slots-free"], cell: (one) => `${exact(one["slots-total"] - one["slots-free"])} of ${exact(one["slots-total"])}` },
  { title: "Subtasks", isNumber: true, value: (one) => one.subtasks, cell: (one) => exact(one.subtasks) },
  { title: "Busy, most", value: (one) => one.busy?.max, cell: (one) => html`<${Share} value=${one.busy?.max} kind="busy" />` },
  { title: "Busy, median", value: (one) => one.busy?.median, cell: (one) => html`<${Share} value=${one.busy?.median} kind="busy" />` },
];

function Hosts({ body }) {
  return html`
    <p class="quiet">There are ${exact(body.total)} slots, so they are added up for each host.</p>
    <${Table} caption="Slots by host" columns=${HOSTS} rows=${body.hosts} first="Busy, most" keyOf=${(/** @type {any} */ one) => one.host} />
    <${Over} text=${BUSY_OVER} />
  `;
}
