// @ts-check
/** Names of vertices. A vertex is a chain of operators, and its name has all of them. */

import { html, useState } from "../base/html.js";

const ARROW = " -> ";
const MOST = 4;

/** The links of a chain. What stands in parentheses are branches, which stay together: `A -> (B -> C, D)` has two links. */
export function operatorsOf(/** @type {string} */ name) {
  const found = [""];
  let depth = 0;
  for (let place = 0; place < name.length; place++) {
    const letter = name[place];
    if (letter === "(") depth++;
    if (letter === ")") depth--;
    if (depth === 0 && name.startsWith(ARROW, place)) {
      found.push("");
      place += ARROW.length - 1;
    } else {
      found[found.length - 1] += letter;
    }
  }
  return found;
}

/** A whole name, whose arrows no line divides. */
export function Name({ name }) {
  return html`${name.split(ARROW).map((/** @type {string} */ one, /** @type {number} */ place) => html`${place > 0 && html` <span class="one-line">-></span> `}${one}`)}`;
}

/** A name for places with little room: the first operator and the last one. */
export function shortName(/** @type {string} */ name) {
  const all = operatorsOf(name);
  return all.length > 2 ? `${all[0]} \u2192 \u2026 \u2192 ${all[all.length - 1]}` : all.join(" \u2192 ");
}

/** The operators of a chain, one after the other. A long chain is folded until somebody asks for the rest. */
export function Chain({ name }) {
  const [isOpen, setOpen] = useState(false);
  const all = operatorsOf(name);
  const isLong = all.length > MOST;
  const first = isLong && !isOpen ? all.slice(0, 2) : all;
  const last = isLong && !isOpen ? all.slice(-1) : [];
  return html`
    <span class="chain">
      ${first.map((one) => html`<span class="operator">${one}</span>`)}
      ${isLong &&
      html`<button class="fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>
        ${isOpen ? "fold" : `${all.length - 3} more operators`}
      </button>`}
      ${last.map((one) => html`<span class="operator">${one}</span>`)}
    </span>
  `;
}
