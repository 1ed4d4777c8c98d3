// @ts-check
/** The way from page to page of a long list, which stands in the address as `page`, from 1. */

import { change } from "../base/address.js";
import { exact } from "../base/format.js";
import { html } from "../base/html.js";

/** @param {{ page: number, pages: number, total: number, size: number, noun: string }} props `page`: from 0 */
export function Pages({ page, pages, total, size, noun }) {
  if (pages <= 1) return null;
  const go = (/** @type {number} */ to) => change({ page: to === 0 ? null : to + 1 }, { isStep: true });
  const last = Math.min(total, (page + 1) * size);
  return html`
    <nav class="row pages" aria-label="Pages of the ${noun}">
      <button disabled=${page === 0} onClick=${() => go(0)} aria-label="First page">\u21e4</button>
      <button disabled=${page === 0} onClick=${() => go(page - 1)} aria-label="Former page">\u2190</button>
      <span role="status">${exact(page * size + 1)}\u2013${exact(last)} of ${exact(total)} ${noun}</span>
      <button disabled=${page >= pages - 1} onClick=${() => go(page + 1)} aria-label="Next page">\u2192</button>
      <button disabled=${page >= pages - 1} onClick=${() => go(pages - 1)} aria-label="Last page">\u21e5</button>
    </nav>
  `;
}

/** The page that the address names, from 0. */
export const pageOf = (/** @type {Record<string, string>} */ query) => Math.max(0, (Number.parseInt(query.page ?? "1", 10) || 1) - 1);
