// @ts-check
/** Which part of the time the charts of a page show. It stands in the address: `window`, and `from` and `to` (ms) where one has zoomed. */

import { change } from "../../base/address.js";
import { duration, time, utc } from "../../base/format.js";
import { WINDOWS } from "../../base/history.js";
import { html } from "../../base/html.js";
import { zoomTo } from "./chart.js";

const SHORTEST_S = 60;

/** @param {Record<string, string>} query @returns {import("../../base/history.js").Window} */
export function windowOf(query) {
  return query.window === "6h" ? "6h" : "10m";
}

/**
 * What is shown, in seconds: what one has zoomed to, or all that is known, up to the newest row. With the end of
 * the job (ms; 0 or less: it has not ended) up to there or to now, so that marks behind the newest row are seen.
 * @param {Record<string, string>} query
 * @param {import("../../base/history.js").History} history
 * @param {number} [endMs]
 * @returns {[from: number, to: number]}
 */
export function spanOf(query, history, endMs) {
  const [from, until] = [Number(query.from) / 1000, Number(query.to) / 1000];
  if (from > 0 && until > from) return [from, until];
  const now = history.now || Date.now();
  const newest = history.isEmpty ? now : history.newest * history.stepMs;
  const last = (endMs === undefined ? newest : endMs > 0 ? endMs : now) / 1000;
  const first = history.isEmpty ? last : (history.first * history.stepMs) / 1000;
  return [Math.min(first, last - SHORTEST_S), last];
}

/** @param {{ query: Record<string, string>, history: import("../../base/history.js").History, span: [from: number, to: number], isArchive?: boolean }} props */
export function RangeBar({ query, history, span, isArchive = false }) {
  const chosen = windowOf(query);
  const [from, until] = span;
  const isZoomed = Boolean(query.from && query.to);
  const isGone = isZoomed && !history.isEmpty && until < (history.first * history.stepMs) / 1000;
  const wide = until - from;
  return html`
    <div class="row range" role="group" aria-label="Time that is shown">
      ${!isArchive &&
      html`<span class="choice">
        ${Object.entries(WINDOWS).map(
          ([name, { title }]) => html`
            <button aria-pressed=${name === chosen} onClick=${() => change({ window: name === "10m" ? null : name, from: null, to: null }, { isStep: true })}>${title}</button>
          `,
        )}
      </span>`}
      <button onClick=${() => zoomTo(until - wide / 2, until)} disabled=${wide <= 10}>Zoom in</button>
      ${isZoomed &&
      html`
        <button onClick=${() => zoomTo(from - wide / 2, until + wide / 2)}>Zoom out</button>
        <button onClick=${() => zoomTo(from - wide / 2, until - wide / 2)} aria-label="Earlier">\u2190</button>
        <button onClick=${() => zoomTo(from + wide / 2, until + wide / 2)} aria-label="Later">\u2192</button>
        <button class="main" onClick=${() => zoomTo(null, null)}>Show all, and follow</button>
      `}
      <span class="quiet" title=${`${utc(from * 1000)} to ${utc(until * 1000)}`}>
        ${time(from * 1000)} to ${time(until * 1000)} (${duration(wide * 1000)})
      </span>
      ${isGone && html`<span class="bad-text">The figures of this time are gone.${chosen === "10m" ? " Those of 6 hours may have them." : ""}</span>`}
    </div>
  `;
}
