// @ts-check
/** The configuration of a job: each option, its value, its default and who set it; those that are set first. */

import { change, to } from "../../base/address.js";
import { UNKNOWN } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Card, Facts, missing } from "../../parts/common.js";
import { Filter, matches } from "../../parts/filter.js";
import { Table } from "../../parts/table.js";
import { checkpointFacts } from "./checkpoint_config.js";
import { JobFrame } from "./frame.js";

export function Page({ job, query, config }) {
  return html`
    <${JobFrame} job=${job} tab="options" config=${config}>
      <div class="columns">
        <${Checkpoints} job=${job} />
        <${Restarts} job=${job} />
      </div>
      <${Options} job=${job} query=${query} />
    <//>
  `;
}

function Checkpoints({ job }) {
  const told = useLive(`/jobs/${job}/checkpoints/config`);
  const isOff = told?.status === 404 && told.body === null;
  const absent = isOff ? html`<p class="quiet">${told.errors[0]}</p>` : missing(told, "how checkpoints are taken");
  return html`<${Card} title="Checkpoints">${absent ?? html`<${Facts} facts=${checkpointFacts(told?.body)} />`}<//>`;
}

function Restarts({ job }) {
  const told = useLive(`/jobs/${job}/config`);
  const absent = missing(told, "how the job restarts");
  if (absent || !told) return html`<${Card} title="Execution">${absent}<//>`;
  const execution = told.body["execution-config"];
  return html`
    <${Card} title="Execution">
      <${Facts} facts=${[["Restarts", execution["restart-strategy"] || UNKNOWN], ["Parallelism", execution["job-parallelism"] > 0 ? execution["job-parallelism"] : "the default"]]} />
      <${Parameters} pairs=${execution["user-config"]} />
    <//>
  `;
}

/** What the program gave to `set_global_job_parameters`. */
function Parameters({ pairs }) {
  const known = Object.entries(pairs ?? {});
  if (known.length === 0) return html`<p class="quiet">The program has set no job parameters.</p>`;
  const columns = [
    { title: "Job parameter", isName: true, value: (row) => row[0], cell: (row) => html`<code>${row[0]}</code>` },
    { title: "Value", value: (row) => row[1], cell: (row) => html`<code>${row[1]}</code>` },
  ];
  return html`<${Table} caption="Job parameters" columns=${columns} rows=${known} keyOf=${(row) => row[0]} />`;
}

function Options({ job, query }) {
  const told = useLive(`/jobs/${job}/options`);
  const absent = missing(told, "the options");
  if (absent || !told) return html`<${Card} title="Options">${absent}<//>`;
  const { subjects, total, set } = told.body;
  const isOnlySet = query.set === "1";
  const rows = subjects.flatMap((/** @type {any} */ subject) =>
    subject.options.map((/** @type {any} */ one) => ({ ...one, subject: subject.subject, page: subject.page })),
  );
  const chosen = rows.filter((/** @type {any} */ one) => (one.set || !isOnlySet) && matches(query.filter, `${one.key} ${one.value ?? ""} ${one.doc ?? ""} ${one.subject}`));
  const ordered = [...chosen.filter((/** @type {any} */ one) => one.set), ...chosen.filter((/** @type {any} */ one) => !one.set)];
  return html`
    <${Card} title="Options">
      <div class="row">
        <${Filter} query=${query} label="Filter options" shown=${ordered.length} total=${total} />
        <label class="row">
          <input type="checkbox" checked=${isOnlySet} onChange=${() => change({ set: isOnlySet ? null : 1 })} />
          only those that somebody has set
        </label>
      </div>
      <p class="quiet">${set} of ${total} options are set. The others have their defaults.</p>
      <${Table} caption="Options" columns=${columnsOf(job)} rows=${ordered} keyOf=${(row) => row.key} empty=${query.filter ? "No such option has these words." : "Nobody has set an option of this job."} />
    <//>
  `;
}

/** @type {Record<string, string>} */
const SETTERS = { program: "the program", "-D": "the command line (-D)", spark: "Spark's configuration" };

const columnsOf = (/** @type {string} */ job) => [
  { title: "Option", isName: true, value: (row) => row.key, cell: (row) => html`<a href=${to(["jobs", job, "options"], { filter: row.key })}><code>${row.key}</code></a>` },
  { title: "Value", cell: (row) => value(row.value, row.set) },
  { title: "Set by", value: (row) => row["set-by"], cell: (row) => setter(row) },
  { title: "Default", cell: (row) => html`${value(row.default, false)}${row["flink-default"] !== row.default && html`<div class="quiet">in Flink: ${value(row["flink-default"], false)}</div>`}` },
  { title: "Meaning", cell: (row) => meaning(row) },
];

function value(/** @type {string | null} */ text, /** @type {boolean} */ isSet) {
  if (text === null) return html`<span class="quiet">none</span>`;
  if (text === "") return html`<span class="quiet">empty text</span>`;
  return isSet ? html`<strong><code>${text}</code></strong>` : html`<code>${text}</code>`;
}

function setter(/** @type {any} */ row) {
  if (!row.set) return html`<span class="quiet">nobody</span>`;
  const by = SETTERS[row["set-by"]] ?? row["set-by"];
  return html`${by}${row["set-as"] && html`<div class="quiet">as <code>${row["set-as"]}</code></div>`}`;
}

function meaning(/** @type {any} */ row) {
  return html`
    ${row.doc ?? html`<span class="quiet">Penstock does not know this key and ignores it.</span>`}
    <div class="quiet">${[row.type, row.subject].filter(Boolean).join(" \u00b7 ")}</div>
  `;
}
