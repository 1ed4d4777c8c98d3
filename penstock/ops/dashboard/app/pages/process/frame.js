// @ts-check
/** What all pages of a process have: its name, and its pages. A process is a TaskManager or the driver. */

import { to } from "../../base/address.js";
import { html } from "../../base/html.js";

const TABS = [
  ["", "Process"],
  ["log", "Log"],
  ["threads", "Threads"],
];

/** Where the pages of a process are, and where REST tells of it. `taskmanager` undefined: the driver. */
export function placeOf(/** @type {string | undefined} */ taskmanager) {
  return taskmanager === undefined
    ? { page: ["driver"], path: "/jobmanager", name: "Driver", noun: "driver" }
    : {
        page: ["taskmanagers", taskmanager],
        path: `/taskmanagers/${encodeURIComponent(taskmanager)}`,
        name: taskmanager,
        noun: "TaskManager",
      };
}

/** @param {{ taskmanager?: string, tab: string, more?: any, children?: any }} props `more`: what stands next to the name */
export function ProcessFrame({ taskmanager, tab, more = null, children }) {
  const { page, name, noun } = placeOf(taskmanager);
  return html`
    <div class="row"><h1>${taskmanager === undefined ? name : `${noun} ${name}`}</h1>${more}</div>
    <nav class="tabs" aria-label="Pages of the ${noun}">
      ${TABS.map(
        ([tabName, title]) => html`
          <a class="tab" href=${to([...page, tabName].filter(Boolean))} aria-current=${tabName === tab ? "page" : null}>${title}</a>
        `,
      )}
    </nav>
    ${children}
  `;
}

/** In place of a process page where the server is one of archives. */
export function NotOfArchive() {
  return html`<p class="banner">
    This server has archives of jobs that have ended. Their processes have ended, too, so there is nothing to show of them.
    <a href=${to([])}>The jobs</a>
  </p>`;
}

export const isArchive = (/** @type {any} */ config) => config.features?.["web-history"] ?? false;
