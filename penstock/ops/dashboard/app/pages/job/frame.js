// @ts-check
/** What all pages of a job have: its name and state, the verdict in one sentence, its pages, and what can be done with it. */

import { to } from "../../base/address.js";
import { duration } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useConnection, useLive } from "../../base/live.js";
import { shortName } from "../../parts/chain.js";
import { missing, Moment, State } from "../../parts/common.js";
import { Actions } from "./actions.js";

const TABS = [
  ["", "Overview"],
  ["timeline", "Timeline"],
  ["checkpoints", "Checkpoints"],
  ["exceptions", "Exceptions"],
  ["rescales", "Rescales"],
  ["metrics", "Metrics"],
  ["watermarks", "Watermarks"],
  ["options", "Configuration"],
];

/** `tab`: which page of the job is shown; `vertex`: null, or the name of the vertex whose pages are shown. */
export function JobFrame({ job, tab, config, children }) {
  // An archive that Flink has written knows only Flink's paths.
  const told = useLive(config.features?.["web-history"] ? `/jobs/${job}` : `/jobs/${job}/head`);
  const { state } = useConnection();
  if (told?.body === null && told.status < 500) return html`<p class="banner bad" role="alert">Job ${job} not found. <a href=${to([])}>All jobs of this driver</a></p>`;
  const absent = missing(told, "the job");
  if (absent || !told) return html`${absent}<p><a href=${to([])}>All jobs of this driver</a></p>`;
  const { body, status } = told;
  const isOver = body["end-time"] > 0;
  const isLost = state === "lost" && !isOver;
  return html`
    ${status >= 400 && html`<p class="banner">The driver does not know this job any longer. The page shows what was known.</p>`}
    <div class="row">
      <h1><a class="plain" href=${to(["jobs", job])}>${body.name}</a></h1>
      ${isLost && html`<span class="quiet">was</span>`}
      <${State} state=${body.state} />
      <span class="quiet" title=${job}>
        ${isLost ? html`when the driver last answered, at <${Moment} at=${told.at} />` : isOver ? html`ended at <${Moment} at=${body["end-time"]} /> after ${duration(body["end-time"] - body["start-time"])}` : body.state === "RUNNING" ? html`up ${duration(body.uptime)}` : html`begun at <${Moment} at=${body["start-time"]} />`}
      </span>
      <span class="space"></span>
      ${!isLost && html`<${Actions} job=${job} name=${body.name} isOver=${isOver} config=${config} isRescalable=${body.rescalable} hasSavepoints=${body["job-type"] !== "BATCH"} />`}
    </div>
    ${(!isOver || body.state === "FAILED") && html`<${Verdict} job=${job} />`}
    <nav class="tabs" aria-label="Pages of the job">
      ${TABS.map(
        ([name, title]) => html`
          <a class="tab" href=${to(["jobs", job, name].filter(Boolean))} aria-current=${name === tab ? "page" : null}>${title}</a>
        `,
      )}
    </nav>
    ${children}
  `;
}

/** Who limits the job, or why it has failed, in words. The further sentences stand below. */
function Verdict({ job }) {
  const told = useLive(`/jobs/${job}/bottleneck`);
  const connection = useConnection();
  if (told === null || told.body === null) return null;
  const { sentence, sentences, healthy } = told.body;
  const others = sentences.filter((/** @type {string} */ one) => one !== sentence);
  const isLost = connection.state === "lost";
  const kind = isLost ? "unknown" : healthy ? "" : "ill";
  return html`
    <div class="verdict ${kind}" role="status">
      <span aria-hidden="true">${isLost ? "?" : healthy ? "\u2713" : "\u26a0"}</span>
      <div>
        ${isLost && html`<p class="quiet">Nobody knows how the job does now. At <${Moment} at=${told.at} /> it was:</p>`}
        <p id="verdict">${sentence}</p>
        <${Places} job=${job} told=${told.body} />
        ${others.length > 0 && html`<ul>${others.map((/** @type {string} */ one) => html`<li>${one}</li>`)}</ul>`}
      </div>
    </div>
  `;
}

/** Where that shows which the verdict tells. */
function Places({ job, told }) {
  const { restarts, waiting, limit, watermark, checkpoint, skewed } = told;
  const found = [
    restarts && ["Exceptions", ["exceptions"]],
    ...[waiting, limit].map((one) => one && [`${shortName(one["vertex-name"])}, subtask ${one.subtask}`, ["vertices", one["vertex-id"]], { subtask: one.subtask }]),
    watermark?.held && ["Watermarks", ["watermarks"]],
    checkpoint?.slow && [`Checkpoint ${checkpoint.id}`, ["checkpoints"], { pin: checkpoint.id }],
    ...skewed.map((/** @type {any} */ one) => [`Skew of ${shortName(one["vertex-name"])}`, ["vertices", one["vertex-id"], "skew"]]),
  ].filter(Boolean);
  return html`<p class="row places">${found.map(([text, path, query]) => html`<a href=${to(["jobs", job, ...path], query)}>${text}</a>`)}</p>`;
}
