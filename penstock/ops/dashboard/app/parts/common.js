// @ts-check
/** Small parts that most pages use. */

import { duration, share, time, UNKNOWN, utc } from "../base/format.js";
import { classes, html } from "../base/html.js";

/** A part of a page with a title. `more`: what stands at the right of it. */
export function Card({ title, more = null, id = undefined, children = null }) {
  return html`
    <section class="card" id=${id} aria-label=${title}>
      <header><h2>${title}</h2><span class="space"></span>${more}</header>
      ${children}
    </section>
  `;
}

/** Names and values side by side. `facts`: [name, value, explanation]. */
export function Facts({ facts }) {
  return html`
    <dl class="facts">
      ${facts.map(
        (/** @type {[string, any, string?]} */ [name, value, title]) => html`<div title=${title}><dt>${name}</dt><dd>${value}</dd></div>`,
      )}
    </dl>
  `;
}

/** @type {Record<string, [kind: string, sign: string]>} */
const STATES = {
  RUNNING: ["good", "\u25cf"],
  FINISHED: ["over", "\u2713"],
  FAILED: ["bad", "\u2715"],
  FAILING: ["bad", "\u2715"],
  CANCELED: ["over", "\u25a0"],
  CANCELLING: ["over", "\u25a1"],
  CANCELING: ["over", "\u25a1"],
  SUSPENDED: ["waiting", "\u2016"],
  RESTARTING: ["waiting", "\u21bb"],
  RECONCILING: ["waiting", "\u21bb"],
  CREATED: ["waiting", "\u25cb"],
  INITIALIZING: ["waiting", "\u25d4"],
  SCHEDULED: ["waiting", "\u25cb"],
  DEPLOYING: ["waiting", "\u25d4"],
  COMPLETED: ["good", "\u2713"],
  IN_PROGRESS: ["waiting", "\u25d4"],
  GIVEN_UP: ["over", "\u2013"],
};

/** What a state means: good, bad, waiting or over. */
export function kindOf(/** @type {string} */ state) {
  return (STATES[state] ?? ["over"])[0];
}

/** A state, by its word, its colour and its sign; the same ones on every page. */
export function State({ state }) {
  const [kind, sign] = STATES[state] ?? ["over", "\u25cb"];
  return html`<span class="badge ${kind}" data-sign=${sign}>${state}</span>`;
}

/** A share as a bar with its number. `kind`: busy, blocked or idle. `median`: of many, whose highest one is `value`. */
export function Share({ value, kind, title = undefined, median = undefined }) {
  if (value === null || value === undefined) return html`<span class="quiet" title=${title ?? "nothing is reported yet"}>${UNKNOWN}</span>`;
  const bounded = Math.min(1, Math.max(0, value));
  return html`
    <span class=${classes("bar", kind)} style=${{ "--share": bounded }} title=${title}><i></i><b>${median !== undefined && html`<small>median ${share(median)}</small> `}${share(bounded)}</b></span>
  `;
}

/** A moment in this zone; UTC where the pointer rests. */
export function Moment({ at }) {
  return html`<time dateTime=${at > 0 ? new Date(at).toISOString() : undefined} title=${utc(at)}>${time(at)}</time>`;
}

/** Over what time the numbers of a part of a page are. Shares are what tasks report of themselves: Flink's means of a minute. */
export const SHARES_OVER = "Busy, back-pressured and idle: means of the last minute.";

export function Over({ text = SHARES_OVER }) {
  return html`<p class="quiet">${text}</p>`;
}

/** How long something took; `since`: it goes on. */
export function Lasted({ ms }) {
  return html`<span class="number">${duration(ms)}</span>`;
}

/** What stands where an answer is not there yet, is an error, or is empty. Null: there is something to show. */
export function missing(/** @type {import("../base/live.js").Told | null} */ told, /** @type {string} */ what) {
  if (told === null) return html`<p class="quiet" aria-busy="true">Asking for ${what}\u2026</p>`;
  if (told.body === null) return html`<p class="bad-text" role="alert">${told.errors[0] ?? `No answer about ${what}.`}</p>`;
  return null;
}

/** Says that not everything is shown. Nothing where everything is. */
export function Bound({ shown, total, noun, why = "" }) {
  if (total === null || total === undefined || shown >= total) return null;
  return html`<p class="quiet">Shown: ${shown} of ${total} ${noun}${why ? `, ${why}` : ""}.</p>`;
}
