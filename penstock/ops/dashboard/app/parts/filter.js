// @ts-check
/** A text that lists are filtered by. It stands in the address. */

import { change } from "../base/address.js";
import { html } from "../base/html.js";

/** Whether a text has all words of a filter. */
export function matches(/** @type {string | undefined} */ filter, /** @type {string} */ text) {
  const known = text.toLowerCase();
  return (filter ?? "").toLowerCase().split(/\s+/).every((word) => known.includes(word));
}

/** @param {{ query: Record<string, string>, label: string, shown: number, total: number, name?: string }} props `name`: in the address */
export function Filter({ query, label, shown, total, name = "filter" }) {
  return html`
    <label class="row filter">
      <span>${label}</span>
      <input type="search" value=${query[name] ?? ""} onInput=${(/** @type {any} */ event) => change({ [name]: event.currentTarget.value })} />
      <span class="quiet" role="status">${shown} of ${total}</span>
    </label>
  `;
}
