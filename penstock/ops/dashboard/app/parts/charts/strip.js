// @ts-check
/** The last checkpoints of a job side by side: width is duration, colour and sign are the state. Each is a link to its own view. */

import { to } from "../../base/address.js";
import { bytes, duration, time } from "../../base/format.js";
import { classes, html } from "../../base/html.js";
import { Bound } from "../common.js";

const SIGNS = /** @type {Record<string, string>} */ ({ COMPLETED: "\u2713", FAILED: "\u2715", GIVEN_UP: "\u2013", IN_PROGRESS: "\u25d4" });
const WORDS = /** @type {Record<string, string>} */ ({ COMPLETED: "completed", FAILED: "failed", GIVEN_UP: "given up, as the job needed it no more", IN_PROGRESS: "in progress" });

/**
 * `body`: as `/jobs/:id/checkpoints/strip` tells it. `shown`: the checkpoint that is shown; `restored`: the one that the job began with last.
 * @param {{ job: string, body: any, shown?: number | null, restored?: number | null }} props
 */
export function Strip({ job, body, shown = null, restored = null }) {
  const ones = body.checkpoints;
  if (ones.length === 0 && body.interval === null) return html`<p class="quiet">This job takes no checkpoints: execution.checkpointing.interval is not set.</p>`;
  if (ones.length === 0) return html`<p class="quiet">No checkpoint has begun yet.</p>`;
  const ended = ones.filter((/** @type {any} */ one) => one.ended !== null);
  const longest = Math.max(1, ...(ended.length ? ended : ones).map((/** @type {any} */ one) => one.duration));
  return html`
    <ol class="strip" aria-label="Last checkpoints, newest first">
      ${ones.map((/** @type {any} */ one) => html`<${One} key=${one.id} job=${job} one=${one} longest=${longest} isShown=${one.id === shown} isRestored=${one.id === restored} />`)}
    </ol>
    <${Bound} shown=${ones.length} total=${body.total} noun="checkpoints" why="the last ones; failed ones stay longer" />
  `;
}

function One({ job, one, longest, isShown, isRestored }) {
  const isSavepoint = one.kind === "savepoint";
  const what = [
    `${isSavepoint ? "Savepoint" : "Checkpoint"} ${one.id} ${WORDS[one.state]}`,
    `${one.ended === null ? "for" : "after"} ${duration(one.duration)}`,
    one.state === "COMPLETED" ? bytes(one["state-bytes"]) : `${one.acknowledged} of ${one.subtasks} subtasks`,
    `begun at ${time(one.triggered)}`,
    one.failure,
    isRestored && "the job was restored from it",
  ];
  return html`
    <li class=${classes((isSavepoint || isRestored) && "with-signs")} style=${{ "--wide": Math.min(1, one.duration / longest) }}>
      <a
        class=${classes("checkpoint", one.state.toLowerCase(), isSavepoint && "savepoint", isRestored && "restored")}
        href=${to(["jobs", job, "checkpoints"], { pin: one.id })} aria-current=${isShown ? "true" : null}
        title=${what.filter(Boolean).join(", ")} aria-label=${what.filter(Boolean).join(", ")}
      >
        <span aria-hidden="true">${SIGNS[one.state]}${isSavepoint && " S"}${isRestored && " \u21ba"}</span>
      </a>
    </li>
  `;
}
