// @ts-check
/** A small line over time, as wide as its place: it shows where something goes, and the numbers next to it say how much. */

import { duration, share } from "../../base/format.js";
import { html } from "../../base/html.js";

const WIDE = 600;
const HIGH = 60;
/** From where on back pressure is LOW, and HIGH. */
const LIMITS = [0.1, 0.5];

/**
 * Shares from 0 to 1 over time; null: not known, which leaves a gap.
 * @param {{ times: number[], values: (number | null)[], others?: (number | null)[], label: string }} props `others`: a thinner line
 */
export function Sparkline({ times, values, others, label }) {
  const known = values.filter((one) => one !== null);
  if (known.length < 2) return html`<p class="quiet">There is no history of it yet.</p>`;
  const lasted = times[times.length - 1] - times[0];
  const most = Math.max(...known);
  return html`
    <figure class="spark">
      <div class="spark-box">
      <svg viewBox="0 0 ${WIDE} ${HIGH}" preserveAspectRatio="none" role="img" aria-label=${`${label}: ${share(known[known.length - 1])} now, at most ${share(most)} in ${duration(lasted)}`}>
        ${LIMITS.map((limit) => html`<line x1="0" x2=${WIDE} y1=${HIGH * (1 - limit)} y2=${HIGH * (1 - limit)} class="limit" />`)}
        ${others && html`<path d=${pathOf(times, others)} class="other" />`}
        <path d=${pathOf(times, values)} class="line" />
      </svg>
      ${LIMITS.map((limit) => html`<span class="quiet" style=${{ bottom: share(limit).replace(" ", "") }} aria-hidden="true">${share(limit)}</span>`)}
      </div>
      <figcaption class="row quiet"><span>${duration(lasted)} ago</span><span class="space"></span><span>now</span></figcaption>
    </figure>
  `;
}

function pathOf(/** @type {number[]} */ times, /** @type {(number | null)[]} */ values) {
  const [first] = times;
  const span = Math.max(1, times[times.length - 1] - first);
  let isDrawing = false;
  return values
    .map((value, place) => {
      const step = isDrawing ? "L" : "M";
      isDrawing = value !== null;
      return value === null ? "" : `${step}${(((times[place] - first) / span) * WIDE).toFixed(1)} ${((1 - value) * HIGH).toFixed(1)}`;
    })
    .join("");
}
