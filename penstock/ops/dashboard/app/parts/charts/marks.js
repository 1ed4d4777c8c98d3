// @ts-check
/** What happened to a job, as marks of its charts: restarts, failures, rescales, checkpoints that failed. */

import { to } from "../../base/address.js";
import { counted } from "../../base/format.js";
import { html, useMemo } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { MarkSign } from "./chart.js";
import { Bound, Moment } from "../common.js";

/** Kinds of the job's story that charts mark. @type {Record<string, import("./plot.js").MarkKind>} */
const KINDS = { restart: "restart", failure: "failure", rescale: "rescale", "checkpoint-failed": "checkpoint" };
const PAGES = { restart: "timeline", failure: "exceptions", rescale: "timeline", checkpoint: "checkpoints" };
const MOST_LISTED = 50;

/** @returns {import("./plot.js").Mark[]} in the order of time; the same ones as before if nothing is new */
export function useMarks(/** @type {string} */ job) {
  const told = useLive(`/jobs/${job}/story`);
  const events = (told?.body?.events ?? []).filter((/** @type {any} */ one) => one.kind in KINDS);
  const last = events[events.length - 1];
  return useMemo(
    () =>
      events.map((/** @type {any} */ one) => {
        const kind = KINDS[one.kind];
        return { at: one.timestamp, kind, text: one.text, href: to(["jobs", job, PAGES[kind]]) };
      }),
    [job, events.length, last?.timestamp, events[0]?.timestamp],
  );
}

/** The marks within what is shown, as a list: for keyboards and screen readers, and to jump to what they are about. */
export function MarkList({ marks, span }) {
  const [from, until] = span;
  const within = marks.filter((/** @type {any} */ one) => one.at >= from * 1000 && one.at <= until * 1000);
  if (within.length === 0) return null;
  const listed = within.slice(-MOST_LISTED).reverse();
  return html`
    <details class="mark-list">
      <summary>${counted(within.length, "mark")} in these charts</summary>
      <ul class="plain">
        ${listed.map(
          (/** @type {import("./plot.js").Mark} */ one) => html`
            <li><${Moment} at=${one.at} /> <${MarkSign} kind=${one.kind} /> <a href=${one.href}>${one.text}</a></li>
          `,
        )}
      </ul>
      <${Bound} shown=${listed.length} total=${within.length} noun="marks" why="the newest ones" />
    </details>
  `;
}
