// @ts-check
/** What all pages of a vertex have: its name and state, its neighbours in the graph, and its pages. */

import { to } from "../../base/address.js";
import { counted, exact } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Chain, shortName } from "../../parts/chain.js";
import { State } from "../../parts/common.js";
import { JobFrame } from "../job/frame.js";

/** @type {[name: string, title: string, isOfStreams: boolean][]} */
const TABS = [
  ["", "Subtasks", false],
  ["lanes", "Lanes", true],
  ["backpressure", "Back pressure", true],
  ["flamegraph", "Flame graph", true],
  ["skew", "Skew", true],
  ["metrics", "Metrics", false],
];

/** `tab`: which page of the vertex is shown; "": its subtasks. */
export function VertexFrame({ job, vertex, tab, config, children }) {
  const told = useLive(`/jobs/${job}`);
  const body = told?.body ?? null;
  const known = body?.vertices.find((/** @type {any} */ one) => one.id === vertex);
  return html`
    <${JobFrame} job=${job} tab="vertices" vertex=${known?.name ?? vertex} config=${config}>
      ${body !== null && !known && html`<p class="banner bad" role="alert">This job has no vertex <code>${vertex}</code>.</p>`}
      ${known && html`<${Head} job=${job} body=${body} known=${known} tab=${tab} />`}
      ${known && (isOfBatch(body) && isOfStreams(tab) ? html`<${NotOfBatch} job=${job} vertex=${vertex} />` : children)}
    <//>
  `;
}

export const isOfBatch = (/** @type {any} */ body) => body?.["job-type"] === "BATCH";

const isOfStreams = (/** @type {string} */ tab) => TABS.some(([name, , needsStreams]) => name === tab && needsStreams);

function NotOfBatch({ job, vertex }) {
  return html`<p class="banner">
    This is a job of BATCH: Spark runs the vertex as a stage, one task after the other, so that there is nothing to show here.
    <a href=${to(["jobs", job, "vertices", vertex])}>The tasks of the stage</a>
  </p>`;
}

function Head({ job, body, known, tab }) {
  const isBatch = isOfBatch(body);
  return html`
    <section class="vertex-head" aria-label="Vertex">
      <div class="row">
        <h2><${Chain} key=${known.id} name=${known.name} /></h2>
        <${State} state=${known.status} />
        <span class="quiet">
          ${counted(known.parallelism, isBatch ? "task" : "subtask")}${known.maxParallelism > 0 &&
          `, max. parallelism ${exact(known.maxParallelism)}`}
        </span>
      </div>
      <${Neighbours} job=${job} body=${body} known=${known} tab=${tab} />
      <nav class="tabs" aria-label="Pages of the vertex">
        ${TABS.filter(([, , needsStreams]) => !isBatch || !needsStreams).map(
          ([name, title]) => html`
            <a class="tab" href=${to(["jobs", job, "vertices", known.id, name].filter(Boolean))} aria-current=${name === tab ? "page" : null}>
              ${title === "Subtasks" && isBatch ? "Tasks" : title}
            </a>
          `,
        )}
      </nav>
    </section>
  `;
}

/** The vertices before and after this one. Their links lead to the same page of them. */
function Neighbours({ job, body, known, tab }) {
  const nodes = body.plan.nodes;
  const own = nodes.find((/** @type {any} */ one) => one.id === known.id);
  const before = (own?.inputs ?? []).map((/** @type {any} */ one) => one.id);
  const after = nodes.filter((/** @type {any} */ one) => one.inputs?.some((/** @type {any} */ input) => input.id === known.id));
  const named = (/** @type {string[]} */ ids) => body.vertices.filter((/** @type {any} */ one) => ids.includes(one.id));
  const links = (/** @type {any[]} */ vertices) =>
    vertices.map(
      (one) => html`<a href=${to(["jobs", job, "vertices", one.id, tab].filter(Boolean))} title=${one.name}>${shortName(one.name)}</a>`,
    );
  const sides = [
    ["\u2190 reads from", named(before)],
    ["\u2192 is read by", named(after.map((/** @type {any} */ one) => one.id))],
  ];
  return html`
    <div class="row neighbours">
      ${sides.map(([word, vertices]) => vertices.length > 0 && html`<span class="row"><span class="quiet">${word}</span>${links(vertices)}</span>`)}
    </div>
  `;
}
