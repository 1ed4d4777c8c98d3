// @ts-check
/** The failures of a job in groups: what failed, at which line of the program, where, how often, and what followed. */

import { change, to } from "../../base/address.js";
import { counted, duration, exact, UNKNOWN } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Bound, Card, Facts, missing, Moment } from "../../parts/common.js";
import { Filter, matches } from "../../parts/filter.js";
import { JobFrame } from "./frame.js";

const MOST_NAMED = 12;

export function Page({ job, query, config }) {
  return html`
    <${JobFrame} job=${job} tab="exceptions" config=${config}>
      <${Groups} job=${job} query=${query} />
    <//>
  `;
}

function Groups({ job, query }) {
  const told = useLive(`/jobs/${job}/exceptions/groups`);
  if (told?.status === 404 && told.body === null) return html`<${Listed} job=${job} why=${told.errors[0]} />`;
  const absent = missing(told, "the failures");
  if (absent || !told) return absent;
  const { groups, total, failures, restarts, now } = told.body;
  if (groups.length === 0) return html`<p class="good-text" role="status">\u2713 Nothing has failed.</p>`;
  // What came with another failure is no cause of its own.
  const shown = [...groups].sort((left, right) => Number(right.root) - Number(left.root)).filter((/** @type {any} */ one) => matches(query.filter, textOf(one)));
  return html`
    <${Facts}
      facts=${[
        ["Failures", exact(failures)],
        ["Kinds", exact(total), "Failures with the same error at the same place are one kind."],
        ["Restarts", exact(restarts)],
      ]}
    />
    <${Filter} query=${query} label="Filter failures" shown=${shown.length} total=${groups.length} />
    <${Bound} shown=${groups.length} total=${total} noun="kinds of failures" why="those with the newest failures" />
    ${shown.map((/** @type {any} */ one) => html`<${Group} key=${one.fingerprint} job=${job} group=${one} isOpen=${query.open === one.fingerprint} now=${now} />`)}
  `;
}

const textOf = (/** @type {any} */ group) =>
  [group.headline, group.exception, group.operator, group["vertex-name"], group.line?.file, group.line?.function, ...group.places.map((/** @type {any} */ one) => one.host)].join(" ");

function Group({ job, group, isOpen, now }) {
  return html`
    <article class="card failure" aria-label=${group.headline}>
      <header>
        <h2>${group.headline}</h2>
        <span class="space"></span>
        <span class="badge bad" data-sign="\u2715">${counted(group.count, "time")}</span>
      </header>
      <${UserLine} line=${group.line} />
      <p>${group.hint}</p>
      <${Facts} facts=${factsOf(job, group, now)} />
      <${Whole} job=${job} group=${group} isOpen=${isOpen} />
    </article>
  `;
}

/** The line of the program where the error came up. */
function UserLine({ line }) {
  if (line === null) return html`<p class="quiet">No line of the program is named: the failure came up outside of it.</p>`;
  return html`
    <div class="user-line">
      <span><code>${line.file}</code>, line ${line.line}, in <code>${line.function}</code></span>
      ${line.text && html`<pre><code>${line.text}</code></pre>`}
    </div>
  `;
}

/** @returns {[string, any, string?][]} */
function factsOf(/** @type {string} */ job, /** @type {any} */ group, /** @type {number} */ now) {
  const vertex = group["vertex-id"];
  const named = group["vertex-name"] ?? UNKNOWN;
  const { restart } = group;
  /** @type {[string, any, string?][]} */
  const facts = [
    ["Last", html`<${Moment} at=${group.last} /> <span class="quiet">(${duration(now - group.last)} ago)</span>`],
    ["First", html`<${Moment} at=${group.first} />`],
    ["Vertex", vertex ? html`<a href=${to(["jobs", job, "vertices", vertex])}>${named}</a>` : "the job as a whole"],
    ["Operator", group.operator, group["built-at"] ? `built at ${group["built-at"]}` : undefined],
    ["Built at", group["built-at"]],
    ["Subtasks", vertex && html`<${Often} all=${group.subtasks} name=${(/** @type {any} */ one) => one.subtask} more=${group["more-failures"]} />`],
    ["TaskManagers", group.places.length > 0 && html`<${Often} all=${group.places} name=${place} />`],
    ["Restart", restart && `${restart.number}${restart.of === null ? "" : ` of ${restart.of}`}, after ${duration(restart.after)}`],
    ["Record", group.record && html`<code>${group.record}</code>`],
  ];
  return facts.filter(([, value]) => value);
}

const place = (/** @type {any} */ one) => html`<a href=${to(["taskmanagers", one["taskmanager-id"]])} title=${one["taskmanager-id"]}>${one.host}</a>`;

/** Where it happened, with how often. `more`: how often elsewhere. */
function Often({ all, name, more = 0 }) {
  const shown = all.slice(0, MOST_NAMED);
  const others = all.slice(MOST_NAMED).reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.count, more);
  return html`<span class="often">
    ${shown.map((/** @type {any} */ one) => html`<span>${name(one)}${one.count > 1 ? html` <span class="quiet">\u00d7 ${exact(one.count)}</span>` : ""}</span>`)}
    ${others > 0 && html`<span class="quiet">and ${exact(others)} elsewhere</span>`}
  </span>`;
}

/** The whole text, once somebody wants it. Which one is open stands in the address. */
function Whole({ job, group, isOpen }) {
  const isCut = group["text-total"] > group.text.length;
  const told = useLive(isOpen && isCut ? `/jobs/${job}/exceptions/groups?fingerprint=${group.fingerprint}` : null);
  const whole = told?.body?.groups.find((/** @type {any} */ one) => one.fingerprint === group.fingerprint);
  const text = whole?.text ?? group.text;
  const toggle = (/** @type {Event} */ event) => {
    event.preventDefault();
    change({ open: isOpen ? null : group.fingerprint });
  };
  return html`
    <details open=${isOpen}>
      <summary onClick=${toggle}>Whole text of the newest one, with all frames (${exact(group["text-total"])} characters)</summary>
      ${isOpen && html`<pre class="stack-text" tabindex="0" role="region" aria-label="Text of the failure">${text}</pre>`}
      ${isOpen && html`<${Bound} shown=${text.length} total=${group["text-total"]} noun="characters" />`}
    </details>
  `;
}

/** An archive has no groups, but each failure. */
function Listed({ job, why }) {
  const told = useLive(`/jobs/${job}/exceptions`);
  const absent = missing(told, "the failures");
  if (absent || !told) return html`<p class="quiet">${why}</p>${absent}`;
  const { entries, truncated } = told.body.exceptionHistory;
  return html`
    <p class="quiet">Failures are not in groups here: ${why}</p>
    ${entries.length === 0 && html`<p class="good-text" role="status">\u2713 Nothing has failed.</p>`}
    ${entries.map(
      (/** @type {any} */ one) => html`
        <${Card} title=${one.exceptionName} more=${html`<${Moment} at=${one.timestamp} />`}>
          <${Facts} facts=${[["Task", one.taskName ?? "the job as a whole"], ["Host", one.endpoint ?? UNKNOWN, one.endpoint ? undefined : "it had no slot"]]} />
          <details><summary>Whole text</summary><pre class="stack-text">${one.stacktrace}</pre></details>
        <//>
      `,
    )}
    ${truncated && html`<p class="quiet">Older failures are left out.</p>`}
  `;
}
