// @ts-check
/** The dialog that gives vertices of a running job other bounds of their parallelism. */

import { html, useEffect, useRef, useState } from "../../base/html.js";
import { ask, reasonOf } from "../../base/server.js";

/**
 * @typedef {object} Bounds
 * @property {string} id of the vertex
 * @property {string} name
 * @property {number} now its parallelism
 * @property {string} lower as it is typed
 * @property {string} upper
 */

/** @returns {Promise<Bounds[]>} */
async function known(/** @type {string} */ job) {
  const [bounds, graph] = await Promise.all([ask(`/jobs/${job}/resource-requirements`), ask(`/jobs/${job}/graph`)]);
  return graph.nodes.map((/** @type {any} */ node) => {
    const { lowerBound, upperBound } = bounds[node.id].parallelism;
    return { id: node.id, name: node.name, now: node.parallelism, lower: String(lowerBound), upper: String(upperBound) };
  });
}

const asked = (/** @type {Bounds[]} */ rows) =>
  Object.fromEntries(rows.map((one) => [one.id, { parallelism: { lowerBound: Number(one.lower), upperBound: Number(one.upper) } }]));

/** @param {{ job: string, name: string, close: () => void }} props */
export function Rescaling({ job, name, close }) {
  const [rows, setRows] = useState(/** @type {Bounds[] | null} */ (null));
  const [outcome, setOutcome] = useState(/** @type {{ text: string, isBad?: boolean, isOver?: boolean } | null} */ (null));
  const shown = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const show = (/** @type {HTMLDialogElement | null} */ dialog) => {
    if (dialog && !dialog.open && shown.current === null) dialog.showModal();
    shown.current = dialog;
  };
  useEffect(() => {
    known(job).then(setRows, (error) => setOutcome({ text: reasonOf(error), isBad: true }));
  }, [job]);
  const change = (/** @type {string} */ id, /** @type {Partial<Bounds>} */ values) =>
    setRows((all) => all && all.map((one) => (one.id === id ? { ...one, ...values } : one)));
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (rows === null) return;
    setOutcome({ text: "Asked. Waiting for the driver\u2026" });
    try {
      await ask(`/jobs/${job}/resource-requirements`, { method: "PUT", body: asked(rows) });
      setOutcome({ text: "The driver has recorded the bounds. The job changes when it has the slots; see Rescales.", isOver: true });
    } catch (error) {
      setOutcome({ text: reasonOf(error), isBad: true });
    }
  };
  const isWaiting = outcome !== null && !outcome.isBad && !outcome.isOver;
  return html`
    <dialog ref=${show} onClose=${close} aria-labelledby="rescale-title">
      <form onSubmit=${send}>
        <h2 id="rescale-title">Rescale: ${name}</h2>
        <p>
          The job stops behind a checkpoint and goes on from it with other numbers of subtasks: no record is processed twice. Each vertex
          gets as many subtasks as there are slots for, between its bounds.
        </p>
        ${rows === null && !outcome && html`<p class="quiet" aria-busy="true">Asking for the bounds\u2026</p>`}
        ${rows !== null && !outcome?.isOver && html`<${Vertices} rows=${rows} change=${change} />`}
        ${outcome && html`<pre class=${outcome.isBad ? "bad-text" : ""} role="status">${outcome.text}</pre>`}
        <div class="row">
          ${!outcome?.isOver && html`<button class="main" disabled=${isWaiting || rows === null}>Rescale</button>`}
          <button type="button" onClick=${() => shown.current?.close()}>${outcome?.isOver ? "Close" : "Leave it"}</button>
        </div>
      </form>
    </dialog>
  `;
}

/** @param {{ rows: Bounds[], change: (id: string, values: Partial<Bounds>) => void }} props */
function Vertices({ rows, change }) {
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Bounds of the parallelism">
      <table>
        <caption class="unseen">Bounds of the parallelism</caption>
        <thead>
          <tr><th scope="col">Vertex</th><th scope="col" class="number">Now</th><th scope="col">At least</th><th scope="col">At most</th></tr>
        </thead>
        <tbody>${rows.map((one) => html`<${Vertex} key=${one.id} one=${one} change=${change} />`)}</tbody>
      </table>
    </div>
  `;
}

function Vertex({ one, change }) {
  const field = (/** @type {"lower" | "upper"} */ which, /** @type {string} */ words) => html`
    <td>
      <input type="number" min="1" max="32768" required aria-label="${words} of ${one.name}" value=${one[which]}
        onInput=${(/** @type {any} */ event) => change(one.id, { [which]: event.currentTarget.value })} />
    </td>
  `;
  return html`
    <tr>
      <th scope="row">${one.name}</th>
      <td class="number">${one.now}</td>
      ${field("lower", "Least parallelism")}${field("upper", "Most parallelism")}
    </tr>
  `;
}
