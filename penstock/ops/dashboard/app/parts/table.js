// @ts-check
/** Tables that are sorted by a click on a column's title. */

import { html, useState } from "../base/html.js";
import { classes } from "../base/html.js";

/**
 * @typedef {object} Column
 * @property {string} title
 * @property {(row: any) => any} cell what is shown
 * @property {(row: any) => any} [value] what is sorted by; without it the column is not sorted
 * @property {boolean} [isNumber]
 * @property {boolean} [isName] names the row
 * @property {string} [hint] explains the title
 */

/**
 * `sorted`: `[column, descending]` and what is called when another one is wanted, where the server sorts.
 * @param {{ columns: Column[], rows: any[], caption: string, keyOf: (row: any) => string | number, first?: string,
 *           empty?: string, sorted?: { by: string, isDescending: boolean, choose: (title: string, isDescending: boolean) => void } }} props
 */
export function Table({ columns, rows, caption, keyOf, first = "", empty = "There are none.", sorted }) {
  const [own, setOwn] = useState({ by: first, isDescending: true });
  const order = sorted ?? { ...own, choose: (by, isDescending) => setOwn({ by, isDescending }) };
  const shown = sorted ? rows : inOrder(rows, columns.find((one) => one.title === order.by), order.isDescending);
  if (rows.length === 0) return html`<p class="quiet">${empty}</p>`;
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label=${caption}>
      <table>
        <caption class="unseen">${caption}</caption>
        <thead><tr>${columns.map((one) => html`<${Title} column=${one} order=${order} />`)}</tr></thead>
        <tbody>${shown.map((row) => html`<tr key=${keyOf(row)}>${columns.map((one) => cellOf(one, row))}</tr>`)}</tbody>
      </table>
    </div>
  `;
}

function Title({ column, order }) {
  const isChosen = order.by === column.title;
  const direction = isChosen ? (order.isDescending ? "descending" : "ascending") : undefined;
  const name = classes(column.isNumber && "number");
  if (!column.value) return html`<th scope="col" class=${name} title=${column.hint}>${column.title}</th>`;
  return html`
    <th scope="col" class=${name} title=${column.hint} aria-sort=${direction}>
      <button onClick=${() => order.choose(column.title, isChosen ? !order.isDescending : true)}>${column.title}</button>
    </th>
  `;
}

function cellOf(/** @type {Column} */ column, /** @type {any} */ row) {
  if (column.isName) return html`<th scope="row">${column.cell(row)}</th>`;
  return html`<td class=${classes(column.isNumber && "number")}>${column.cell(row)}</td>`;
}

/** Unknown values come last, in both directions. */
function inOrder(/** @type {any[]} */ rows, /** @type {Column | undefined} */ column, /** @type {boolean} */ isDescending) {
  const value = column?.value;
  if (!value) return rows;
  const sign = isDescending ? -1 : 1;
  return [...rows].sort((left, right) => {
    const [a, b] = [value(left), value(right)];
    if (a == null || b == null) return Number(a == null) - Number(b == null);
    return a < b ? -sign : a > b ? sign : 0;
  });
}
