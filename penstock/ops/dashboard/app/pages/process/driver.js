// @ts-check
/** The driver: the program's own process, in which the JobManagers of its jobs live. */

import { change } from "../../base/address.js";
import { bytes, duration, exact, share } from "../../base/format.js";
import { html } from "../../base/html.js";
import { useLive } from "../../base/live.js";
import { Card, Facts, missing, Over } from "../../parts/common.js";
import { Files } from "../../parts/logs/files.js";
import { Table } from "../../parts/table.js";
import { isArchive, NotOfArchive, ProcessFrame } from "./frame.js";

/** @type {[title: string, metric: string, shown: (value: number) => string, hint?: string][]} */
const FIGURES = [
  ["CPU", "Status.JVM.CPU.Load", share, "Share of all cores of the machine"],
  ["CPU time", "Status.JVM.CPU.Time", (ns) => duration(ns / 1e6)],
  ["Resident memory", "Status.JVM.Memory.Heap.Used", bytes],
  ["Memory of the machine", "Status.JVM.Memory.Heap.Max", bytes],
  ["Arrow's memory", "Status.Arrow.Memory.Used", bytes, "What Arrow's columns and buffers take"],
  ["Garbage collection", "Status.JVM.GarbageCollector.All.TimeMsPerSecond", (ms) => share(ms / 1000), "Share of the time that Python's collector takes"],
  ["Threads", "Status.JVM.Threads.Count", exact],
  ["Open files", "Status.JVM.FileDescriptor.Open", exact],
  ["Modules loaded", "Status.JVM.ClassLoader.ClassesLoaded", exact],
  ["Jobs running", "numRunningJobs", exact],
];

/** @param {{ query: Record<string, string>, config: any }} props */
export function Page({ query, config }) {
  if (isArchive(config)) return html`<${NotOfArchive} />`;
  return html`
    <${ProcessFrame} tab="">
      <${Metrics} />
      <${Environment} />
      <${Options} query=${query} />
      <${Files} path="/jobmanager" page=${["driver"]} noun="driver" />
    <//>
  `;
}

function Metrics() {
  const told = useLive(`/jobmanager/metrics?get=${FIGURES.map(([, metric]) => metric).join()}`);
  const absent = missing(told, "the driver's figures");
  const values = new Map((told?.body ?? []).map((/** @type {any} */ one) => [one.id, Number(one.value)]));
  const facts = FIGURES.map(([title, metric, shown, hint]) => {
    const value = values.get(metric);
    const isKnown = value !== undefined && Number.isFinite(value) && value >= 0;
    return [title, isKnown ? shown(value) : html`<span class="quiet" title="The system does not tell it.">n/a</span>`, hint];
  });
  return html`<${Card} title="Process">${absent ?? html`<${Facts} facts=${facts} /><${Over} text="As the driver last measured it, a few seconds ago." />`}<//>`;
}

function Environment() {
  const told = useLive("/jobmanager/environment");
  const absent = missing(told, "the driver's environment");
  if (absent || !told) return html`<${Card} title="Environment">${absent}<//>`;
  const { jvm } = told.body;
  const lists = [
    ["Options of Python", jvm.options],
    ["Where modules are looked for", told.body.classpath],
  ];
  return html`
    <${Card} title="Environment">
      <${Facts} facts=${[["Python", jvm.version], ["Machine", jvm.arch]]} />
      ${lists.map(([title, values]) => values?.length > 0 && html`<details><summary>${title}: ${values.length}</summary><ul class="plain">${values.map((/** @type {string} */ one) => html`<li><code>${one}</code></li>`)}</ul></details>`)}
    <//>
  `;
}

const COLUMNS = [
  { title: "Option", isName: true, value: (one) => one.key, cell: (one) => html`<code>${one.key}</code>` },
  { title: "Value", value: (one) => one.value, cell: (one) => html`<code>${one.value}</code>` },
];

/** What is set in the jobs of this driver together. A job's own page tells who set what. */
function Options({ query }) {
  const told = useLive("/jobmanager/config");
  const absent = missing(told, "the options");
  if (absent || !told) return html`<${Card} title="Options that are set">${absent}<//>`;
  const text = (query.q ?? "").toLowerCase();
  const rows = told.body.filter((/** @type {any} */ one) => `${one.key} ${one.value}`.toLowerCase().includes(text));
  const search = html`<label class="row">
    Show those with <input type="search" value=${query.q ?? ""} onInput=${(/** @type {any} */ event) => change({ q: event.currentTarget.value })} />
    <span role="status">${rows.length} of ${told.body.length}</span>
  </label>`;
  return html`
    <${Card} title="Options that are set" more=${search}>
      <${Table} caption="Options" columns=${COLUMNS} rows=${rows} first="Option" keyOf=${(/** @type {any} */ one) => one.key} empty="None has this text." />
    <//>
  `;
}
