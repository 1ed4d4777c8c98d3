// @ts-check
/** One subtask: its attempts, each with its states and how it ended, and what happened to it in order. */

import { change, to } from "../base/address.js";
import { counted, duration } from "../base/format.js";
import { html, useEffect, useState } from "../base/html.js";
import { useLive } from "../base/live.js";
import { ask, reasonOf } from "../base/server.js";
import { Card, missing, Moment, State } from "./common.js";
import { Table } from "./table.js";

/** @param {{ job: string, vertex: string, subtask: string, isArchive: boolean }} props */
export function Subtask({ job, vertex, subtask, isArchive }) {
  const close = html`<button onClick=${() => change({ subtask: null }, { isStep: true })}>Close</button>`;
  return html`
    <${Card} title=${`Subtask ${subtask}`} id="subtask" more=${close}>
      ${isArchive ? html`<${Archived} job=${job} vertex=${vertex} subtask=${subtask} />` : html`<${Told} job=${job} vertex=${vertex} subtask=${subtask} />`}
    <//>
  `;
}

const COLUMNS = [
  { title: "Attempt", isName: true, value: (one) => one.attempt, cell: (one) => one.attempt },
  { title: "State", cell: (one) => html`<${State} state=${one.state} />` },
  { title: "TaskManager", cell: (one) => (one["taskmanager-id"] ? html`<a href=${to(["taskmanagers", one["taskmanager-id"]])}>${one["taskmanager-id"]}</a>` : "n/a") },
  { title: "Host", cell: (one) => one.host ?? "n/a" },
  { title: "Began", cell: (one) => html`<${Moment} at=${one.spans[0]?.from} />` },
  { title: "Its states", cell: (one) => html`<span class="row">${one.spans.map((/** @type {any} */ span) => html`<span>${span.state} <span class="quiet">${lasted(span, one.now)}</span></span>`)}</span>` },
  { title: "Ended with", cell: (one) => (one.cause ? html`<span class="bad-text">${one.cause}</span>` : "") },
];

const lasted = (/** @type {any} */ span, /** @type {number} */ now) => (span.to === span.from ? "" : duration((span.to ?? now) - span.from));

function Told({ job, vertex, subtask }) {
  const asked = new URLSearchParams({ vertexid: vertex, subtaskindex: subtask });
  const attempts = useLive(`/jobs/${job}/timeline?${asked}`);
  const story = useLive(`/jobs/${job}/story?${asked}`);
  const absent = missing(attempts, "the attempts");
  if (absent || !attempts) return absent;
  const rows = attempts.body.attempts.map((/** @type {any} */ one) => ({ ...one, now: attempts.body.now }));
  const first = Math.min(...rows.map((/** @type {any} */ one) => one.attempt));
  return html`
    <${Table} caption="Attempts" columns=${COLUMNS} rows=${rows} first="Attempt" keyOf=${(/** @type {any} */ one) => one.attempt} />
    ${first > 0 && html`<p class="quiet">Of ${counted(first, "older attempt")} nothing is known any longer.</p>`}
    <${Story} told=${story} />
  `;
}

function Story({ told }) {
  const absent = missing(told, "the story");
  if (absent) return absent;
  const { events, forgotten } = told.body;
  return html`
    <details>
      <summary>Its story: ${counted(events.length, "event")}</summary>
      ${forgotten > 0 && html`<p class="quiet">${counted(forgotten, "older event")} of the job are forgotten.</p>`}
      <ol class="story" tabindex="0" aria-label="Story of the subtask">
        ${events.map((/** @type {any} */ one) => html`<li><${Moment} at=${one.timestamp} /> <span class="quiet">${one.kind}</span> ${one.text}</li>`)}
      </ol>
    </details>
  `;
}

/** An archive has each attempt at its own path. */
function Archived({ job, vertex, subtask }) {
  const [attempts, setAttempts] = useState(/** @type {any[] | null} */ (null));
  const [error, setError] = useState("");
  const told = useLive(`/jobs/${job}/vertices/${vertex}`);
  const newest = told?.body?.subtasks.find((/** @type {any} */ one) => String(one.subtask) === subtask);
  useEffect(() => {
    if (!newest) return;
    const path = `/jobs/${job}/vertices/${vertex}/subtasks/${subtask}/attempts`;
    const numbers = Array.from({ length: newest.attempt + 1 }, (_, number) => number).slice(-KEPT);
    Promise.all(numbers.map((number) => ask(`${path}/${number}`))).then(setAttempts, (failure) => setError(reasonOf(failure)));
  }, [newest]);
  if (told?.body && !newest) return html`<p class="bad-text" role="alert">The vertex has no subtask ${subtask}.</p>`;
  if (error) return html`<p class="bad-text" role="alert">${error}</p>`;
  if (attempts === null) return html`<p class="quiet" aria-busy="true">Asking for the attempts\u2026</p>`;
  return html`<${Table} caption="Attempts" columns=${ARCHIVED} rows=${attempts} first="Attempt" keyOf=${(/** @type {any} */ one) => one.attempt} />`;
}

/** A driver remembers so many attempts of a subtask. */
const KEPT = 17;

const ARCHIVED = [
  { title: "Attempt", isName: true, value: (one) => one.attempt, cell: (one) => one.attempt },
  { title: "State", cell: (one) => html`<${State} state=${one.status} />` },
  { title: "Place", cell: (one) => one.endpoint },
  { title: "Began", cell: (one) => html`<${Moment} at=${one["start-time"]} />` },
  { title: "Ended", cell: (one) => html`<${Moment} at=${one["end-time"]} />` },
  { title: "Duration", isNumber: true, value: (one) => one.duration, cell: (one) => duration(one.duration < 0 ? null : one.duration) },
];
