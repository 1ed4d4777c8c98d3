// @ts-check
/** The states of a job, of its vertices and of the attempts of one of them over time, with what happened; below it the story as a list. */

import { change, to } from "../../base/address.js";
import { counted, duration, exact, time, utc } from "../../base/format.js";
import { html, useMemo } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { zoomTo } from "../../parts/charts/chart.js";
import { Bound, Card, missing, Moment } from "../../parts/common.js";
import { Filter, matches } from "../../parts/filter.js";
import { Lanes } from "../../parts/charts/lanes.js";
import { MarkSign } from "../../parts/charts/chart.js";
import { JobFrame } from "./frame.js";

const LANES_AT_A_TIME = 200;
const STORY_AT_A_TIME = 100;
/** What happened, as marks. @type {Record<string, import("../../parts/charts/plot.js").MarkKind>} */
const KINDS = { restart: "restart", failure: "failure", rescale: "rescale", "checkpoint-failed": "checkpoint", savepoint: "savepoint", restore: "restore" };

export function Page({ job, query, config }) {
  return html`
    <${JobFrame} job=${job} tab="timeline" config=${config}>
      <${States} job=${job} query=${query} />
      <${Story} job=${job} query=${query} />
    <//>
  `;
}

function States({ job, query }) {
  const told = useLive(`/jobs/${job}/timeline`);
  const vertex = query.vertex ?? null;
  const offset = Math.max(0, Number(query.lanes) || 0);
  const attempts = useLive(vertex === null ? null : `/jobs/${job}/timeline?vertexid=${encodeURIComponent(vertex)}&offset=${offset}`);
  const marks = useMarksOf(job, told?.body?.marks ?? []);
  const absent = missing(told, "the states over time");
  if (absent || !told) return absent;
  const { body } = told;
  const [from, until] = spanOf(query, body);
  const lanes = [jobLane(body.job), ...body.vertices.flatMap((/** @type {any} */ one) => lanesOf(job, one, vertex, attempts?.body))];
  return html`
    <${Card} title="States over time" more=${html`<${Zoom} query=${query} span=${[from, until]} />`}>
      <${Lanes} title="States over time" lanes=${lanes} span=${[from, until]} now=${body.to ?? body.now} marks=${marks} said=${said(job)} />
      <${Folded} lanes=${[body.job, ...body.vertices]} />
      ${vertex !== null && html`<${Attempts} told=${attempts} offset=${offset} />`}
      <${Bound} shown=${body.marks.length} total=${body["marks-total"]} noun="marks" why="the newest ones" />
    <//>
  `;
}

/** All of the job's life, or what one has zoomed to; in ms. @returns {[number, number]} */
function spanOf(/** @type {Record<string, string>} */ query, /** @type {any} */ body) {
  const [from, until] = [Number(query.from), Number(query.to)];
  if (from > 0 && until > from) return [from, until];
  const first = body.job.spans[0]?.from ?? body.from;
  const last = body.to ?? body.now;
  return [Math.min(first, last - 1000), last];
}

const jobLane = (/** @type {any} */ told) => ({ key: "job", name: "Job", label: html`<b>Job</b>`, spans: told.spans });

/** The lane of a vertex, and those of its attempts where it is chosen. */
function lanesOf(/** @type {string} */ job, /** @type {any} */ one, /** @type {string | null} */ chosen, /** @type {any} */ attempts) {
  const isOpen = one.id === chosen;
  const toggle = () => change({ vertex: isOpen ? null : one.id, lanes: null }, { isStep: true });
  const label = html`
    <button class="fold" aria-expanded=${isOpen} aria-label=${`Attempts of ${one.name}`} onClick=${toggle}>${isOpen ? "\u25be" : "\u25b8"}</button>
    <a href=${to(["jobs", job, "vertices", one.id])}>${one.name}</a>
  `;
  const own = { key: one.id, name: one.name, label, spans: one.spans };
  if (!isOpen || attempts?.id !== one.id) return [own];
  return [own, ...attempts.attempts.map((/** @type {any} */ attempt) => attemptLane(one, attempt))];
}

function attemptLane(/** @type {any} */ vertex, /** @type {any} */ one) {
  const last = one.spans.length - 1;
  return {
    key: `${vertex.id}-${one.subtask}-${one.attempt}`,
    name: `${vertex.name}, subtask ${one.subtask}, attempt ${one.attempt}${one.host ? ` on ${one.host}` : ""}`,
    label: html`subtask ${one.subtask} <span class="quiet">attempt ${one.attempt}${one.host ? `, ${one.host}` : ""}</span>`,
    spans: one.spans.map((/** @type {any} */ span, /** @type {number} */ place) => (place === last ? { ...span, cause: one.cause } : span)),
    isInner: true,
    taskmanager: one["taskmanager-id"],
  };
}

/** What a state leads to: the exception, and the TaskManager. */
const said = (/** @type {string} */ job) => (/** @type {any} */ lane, /** @type {any} */ span) => html`
  ${span.cause && html`<a href=${to(["jobs", job, "exceptions"], { filter: span.cause.split(":")[0] })}>the exception</a>`}
  ${lane.taskmanager && html` <a href=${to(["taskmanagers", lane.taskmanager])}>its TaskManager</a>`}
`;

function useMarksOf(/** @type {string} */ job, /** @type {any[]} */ told) {
  return useMemo(
    () => told.map((one) => ({ at: one.at, kind: KINDS[one.kind], text: one.text, href: hrefOf(job, one) })).filter((one) => one.kind),
    [job, told.length, told[told.length - 1]?.at],
  );
}

function hrefOf(/** @type {string} */ job, /** @type {any} */ one) {
  if (one.kind === "failure") return to(["jobs", job, "exceptions"], { filter: one.text.split(":")[0] });
  return ["checkpoint-failed", "savepoint", "restore"].includes(one.kind) ? to(["jobs", job, "checkpoints"]) : null;
}

function Zoom({ query, span }) {
  const [from, until] = span;
  const wide = until - from;
  const zoom = (/** @type {number} */ first, /** @type {number} */ last) => zoomTo(first / 1000, last / 1000);
  return html`
    <span class="row range" role="group" aria-label="Time that is shown">
      <span class="quiet" title=${`${utc(from)} to ${utc(until)}`}>${time(from)} to ${time(until)} (${duration(wide)})</span>
      <button onClick=${() => zoom(until - wide / 2, until)}>Zoom in</button>
      ${query.from &&
      html`
        <button onClick=${() => zoom(from - wide / 2, until + wide / 2)}>Zoom out</button>
        <button aria-label="Earlier" onClick=${() => zoom(from - wide / 2, until - wide / 2)}>\u2190</button>
        <button aria-label="Later" onClick=${() => zoom(from + wide / 2, until + wide / 2)}>\u2192</button>
        <button class="main" onClick=${() => zoomTo(null, null)}>Show all</button>
      `}
    </span>
  `;
}

/** Lanes that have forgotten their oldest states say so. */
function Folded({ lanes }) {
  const cut = lanes.filter((/** @type {any} */ one) => one.total > one.shown);
  if (cut.length === 0) return null;
  return html`<p class="quiet">Of ${counted(cut.length, "lane")} only the last ${exact(cut[0].kept)} changes are kept.</p>`;
}

/** Which attempts of the chosen vertex are shown. */
function Attempts({ told, offset }) {
  const absent = missing(told, "the attempts");
  if (absent || !told) return absent;
  const { attempts, shown, total } = told.body;
  if (!attempts) return html`<p class="quiet">An archive has no states of attempts over time.</p>`;
  return html`
    <p class="row quiet">
      <span>Attempts ${exact(Math.min(total, offset + 1))} to ${exact(offset + shown)} of ${exact(total)}, subtasks with most attempts first.</span>
      ${offset > 0 && html`<button onClick=${() => change({ lanes: Math.max(0, offset - LANES_AT_A_TIME) || null })}>Former ones</button>`}
      ${offset + shown < total && html`<button onClick=${() => change({ lanes: offset + LANES_AT_A_TIME })}>Next ones</button>`}
    </p>
  `;
}

/** What happened, newest first. */
function Story({ job, query }) {
  const told = useLive(`/jobs/${job}/story`);
  const absent = missing(told, "the story");
  if (absent || !told) return html`<${Card} title="Story">${absent}<//>`;
  const { events, forgotten } = told.body;
  const found = events.filter((/** @type {any} */ one) => matches(query.filter, `${one.kind} ${one.text}`)).reverse();
  const shown = found.slice(0, Number(query.most) || STORY_AT_A_TIME);
  return html`
    <${Card} title="Story">
      <${Filter} query=${query} label="Filter the story" shown=${found.length} total=${events.length} />
      <ol class="story" reversed tabindex="0" aria-label="Story of the job">
        ${shown.map((/** @type {any} */ one) => html`<${Event} key=${`${one.timestamp}-${one.text}`} job=${job} one=${one} />`)}
      </ol>
      ${shown.length < found.length && html`<p class="row quiet">Shown: ${exact(shown.length)} of ${exact(found.length)}. <button onClick=${() => change({ most: shown.length * 4 })}>Show more</button></p>`}
      ${forgotten > 0 && html`<p class="quiet">${counted(forgotten, "older event")} are forgotten.</p>`}
    <//>
  `;
}

function Event({ job, one }) {
  const kind = KINDS[one.kind];
  const href = hrefOf(job, { ...one, text: one.text.slice(one.text.indexOf(" failed: ") + 9) });
  return html`
    <li>
      <${Moment} at=${one.timestamp} />
      <span>${kind && html`<${MarkSign} kind=${kind} /> `}${href ? html`<a href=${href}>${one.text}</a>` : one.text}</span>
    </li>
  `;
}
