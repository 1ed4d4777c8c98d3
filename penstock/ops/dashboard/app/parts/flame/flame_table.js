// @ts-check
/** The frames of a flame graph as a table: a row for each, below the one that calls it, to be unfolded. */

import { count, counted, share } from "../../base/format.js";
import { html, useMemo, useState } from "../../base/html.js";
import { Bound } from "../common.js";

/** @typedef {import("./flame_tree.js").Frame} Frame */

const MOST_ROWS = 300;
const OPEN_FROM = 0.2;

/** A frame in words. */
export function told(/** @type {Frame} */ frame) {
  let root = frame;
  while (root.parent) root = root.parent;
  const all = root.value || 1;
  return `${frame.name}: ${share(frame.value / all)} of all samples, ${counted(frame.value, "sample")}, ${count(frame.own)} in it alone`;
}

/** @param {{ frames: Frame[], zoom: (frame: Frame) => void }} props */
export function FlameTable({ frames, zoom }) {
  const [root] = frames;
  const [changed, setChanged] = useState(/** @type {Record<string, boolean>} */ ({}));
  const isOpen = (/** @type {Frame} */ one) => changed[pathOf(one)] ?? one.value / (root.value || 1) >= OPEN_FROM;
  const rows = useMemo(() => visible(root, isOpen), [root, changed]);
  const turn = (/** @type {Frame} */ one) => setChanged({ ...changed, [pathOf(one)]: !isOpen(one) });
  return html`
    <div class="scroll" tabindex="0" role="region" aria-label="Frames as a table">
      <table role="treegrid" aria-label="Frames">
        <thead>
          <tr role="row">
            <th scope="col" role="columnheader">Frame</th>
            <th scope="col" role="columnheader" class="number">Share</th>
            <th scope="col" role="columnheader" class="number">Samples</th>
            <th scope="col" role="columnheader" class="number" title="Samples in which it was the innermost frame">In it alone</th>
          </tr>
        </thead>
        <tbody>
          ${rows.slice(0, MOST_ROWS).map((one) => html`<${Row} key=${pathOf(one)} one=${one} root=${root} isOpen=${isOpen(one)} turn=${turn} zoom=${zoom} />`)}
        </tbody>
      </table>
    </div>
    <${Bound} shown=${Math.min(rows.length, MOST_ROWS)} total=${rows.length} noun="frames" why="fold some to see others" />
  `;
}

function Row({ one, root, isOpen, turn, zoom }) {
  const hasMore = one.children.length > 0;
  return html`
    <tr role="row" aria-level=${one.depth + 1} aria-expanded=${hasMore ? isOpen : undefined}>
      <td role="gridcell" style=${{ paddingLeft: `${Math.min(one.depth, 30) * 12}px` }}>
        ${hasMore
          ? html`<button class="fold" aria-label=${`${isOpen ? "Fold" : "Unfold"} ${one.name}`} onClick=${() => turn(one)}>${isOpen ? "\u2212" : "+"}</button>`
          : html`<span class="no-fold"></span>`}
        <button class="link" onClick=${() => zoom(one)}>${one.name}</button>
      </td>
      <td role="gridcell" class="number">${share(one.value / (root.value || 1))}</td>
      <td role="gridcell" class="number">${count(one.value)}</td>
      <td role="gridcell" class="number">${count(one.own)}</td>
    </tr>
  `;
}

/** Says where a frame is, also if another one has its name. */
function pathOf(/** @type {Frame} */ frame) {
  return `${frame.key}@${frame.left}`;
}

/** The rows that are unfolded, in order. */
function visible(/** @type {Frame} */ root, /** @type {(one: Frame) => boolean} */ isOpen) {
  /** @type {Frame[]} */
  const found = [];
  const left = [root];
  for (let one = left.pop(); one; one = left.pop()) {
    found.push(one);
    if (isOpen(one)) left.push(...[...one.children].reverse());
  }
  return found;
}
