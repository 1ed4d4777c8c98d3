// @ts-check
/** What can be done with a running job. Each action asks first, and says what it costs. */

import { html, useRef, useState } from "../../base/html.js";
import { ask, operate, ServerError } from "../../base/server.js";

/**
 * @typedef {object} Action
 * @property {string} name
 * @property {string} costs what it means for the job
 * @property {boolean} [isDanger]
 * @property {boolean} [hasFolder] it takes the folder of a savepoint
 * @property {(job: string, folder: string | null) => Promise<string>} run returns what has happened
 */

/** @type {Record<string, Action>} */
const ACTIONS = {
  savepoint: {
    name: "Savepoint",
    costs: "Takes a savepoint. The job runs on.",
    hasFolder: true,
    run: async (job, folder) => {
      const done = await operate(`/jobs/${job}/savepoints`, { "target-directory": folder, "cancel-job": false }, (id) => `/jobs/${job}/savepoints/${id}`);
      return `The savepoint is at ${done.location}.`;
    },
  },
  stop: {
    name: "Stop with savepoint",
    costs: "Takes a savepoint and ends the job. Nothing is lost: a program that starts from the savepoint goes on there.",
    hasFolder: true,
    run: async (job, folder) => {
      const done = await operate(`/jobs/${job}/stop`, { targetDirectory: folder, drain: false }, (id) => `/jobs/${job}/savepoints/${id}`);
      return `The job has stopped. Its savepoint is at ${done.location}.`;
    },
  },
  cancel: {
    name: "Cancel",
    costs: "Ends the job at once, without a savepoint. What it did since its last checkpoint is lost to a program that starts from there.",
    isDanger: true,
    run: async (job) => {
      await ask(`/jobs/${job}?mode=cancel`, { method: "PATCH" });
      return "The job is being cancelled.";
    },
  },
};

/** @param {{ job: string, name: string, isOver: boolean, config: any, isRescalable: boolean, hasSavepoints: boolean }} props */
export function Actions({ job, name, isOver, config, isRescalable, hasSavepoints }) {
  const [chosen, setChosen] = useState(/** @type {Action | null} */ (null));
  const [Rescaling, setRescaling] = useState(/** @type {any} */ (null));
  const rescale = () => import("./rescaling.js").then((one) => setRescaling(() => one.Rescaling));
  if (isOver || config.features?.["web-history"]) return null;
  const mayCancel = config.features?.["web-cancel"] ?? false;
  const offered = Object.values(ACTIONS).filter((one) => (one.isDanger ? mayCancel : hasSavepoints));
  return html`
    <span class="row">
      ${isRescalable && html`<button onClick=${rescale}>Rescale</button>`}
      ${offered.map((one) => html`<button class=${one.isDanger ? "danger" : ""} onClick=${() => setChosen(one)}>${one.name}</button>`)}
    </span>
    ${Rescaling && html`<${Rescaling} job=${job} name=${name} close=${() => setRescaling(null)} />`}
    ${chosen && html`<${Confirmation} key=${chosen.name} action=${chosen} job=${job} name=${name} close=${() => setChosen(null)} />`}
  `;
}

/** @param {{ action: Action, job: string, name: string, close: () => void }} props */
function Confirmation({ action, job, name, close }) {
  const [folder, setFolder] = useState("");
  const [outcome, setOutcome] = useState(/** @type {{ text: string, isBad?: boolean, isOver?: boolean } | null} */ (null));
  const shown = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const show = (/** @type {HTMLDialogElement | null} */ dialog) => {
    if (dialog && !dialog.open && shown.current === null) dialog.showModal();
    shown.current = dialog;
  };
  const send = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setOutcome({ text: "Asked. Waiting for the job\u2026" });
    try {
      setOutcome({ text: await action.run(job, folder.trim() || null), isOver: true });
    } catch (error) {
      const texts = error instanceof ServerError && error.texts.length ? error.texts : [String(error)];
      setOutcome({ text: texts.join("\n"), isBad: true });
    }
  };
  const isWaiting = outcome !== null && !outcome.isBad && !outcome.isOver;
  return html`
    <dialog ref=${show} onClose=${close} aria-labelledby="confirm-title">
      <form onSubmit=${send}>
        <h2 id="confirm-title">${action.name}: ${name}</h2>
        <p>${action.costs}</p>
        ${action.hasFolder &&
        html`<label>
          Folder of the savepoint; empty: the one that is configured
          <input value=${folder} onInput=${(/** @type {any} */ event) => setFolder(event.currentTarget.value)} />
        </label>`}
        ${outcome && html`<pre class=${outcome.isBad ? "bad-text" : ""} role="status">${outcome.text}</pre>`}
        <div class="row">
          ${!outcome?.isOver &&
          html`<button class=${action.isDanger ? "danger" : "main"} disabled=${isWaiting}>${action.name}</button>`}
          <button type="button" onClick=${() => shown.current?.close()}>${outcome?.isOver ? "Close" : "Leave it"}</button>
        </div>
      </form>
    </dialog>
  `;
}
