// @ts-check
/** A flame graph: a bar for each frame, as wide as its share of the samples; those that it calls stand below it. */

import { classes, html, useEffect, useRef } from "../../base/html.js";
import { Bound } from "../common.js";
import { isOwn, isWithin } from "./flame_tree.js";
import { told } from "./flame_table.js";

/** @typedef {import("./flame_tree.js").Frame} Frame */

const LEAST_SHARE = 0.002;

/**
 * `zoomed`: the frame that is as wide as the drawing. `see`: called with the frame to which one points.
 * @param {{ frames: Frame[], zoomed: Frame, text: string, zoom: (frame: Frame) => void, see: (frame: Frame | null) => void }} props
 */
export function Flame({ frames, zoomed, text, zoom, see }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const zooms = useRef(false);
  useEffect(() => {
    // Who zooms with the keyboard goes on from the frame that is wide now.
    if (zooms.current) /** @type {HTMLElement | null} */ (place.current?.querySelector('[tabindex="0"]'))?.focus();
    zooms.current = false;
  }, [zoomed]);
  const shown = frames.filter((one) => isDrawn(one, zoomed));
  const below = frames.filter((one) => isWithin(one, zoomed));
  const rows = Math.max(...shown.map((one) => one.depth)) + 1;
  const chosen = (/** @type {Frame} */ frame) => {
    zooms.current = true;
    zoom(frame);
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape" && zoomed.parent) chosen(zoomed.parent);
    else walk(event, shown);
  };
  return html`
    <div
      class="flame" ref=${place} role="group" aria-label="Flame graph. Arrows go from frame to frame, Enter zooms in, Escape zooms out."
      style=${{ height: `${rows * 21}px` }} onKeyDown=${pressed} onMouseLeave=${() => see(null)}
    >
      ${shown.map((one, at) => html`<${Bar} key=${at + one.key} at=${at} frame=${one} zoomed=${zoomed} text=${text} zoom=${chosen} see=${see} />`)}
    </div>
    <${Bound} shown=${below.filter((one) => shown.includes(one)).length} total=${below.length} noun="frames" why="the others are too narrow; zoom in to see them" />
  `;
}

/** Those above the one that is zoomed are as wide as it; next to it nothing is shown, nor what would be too small to be seen. */
function isDrawn(/** @type {Frame} */ one, /** @type {Frame} */ zoomed) {
  if (one.depth <= zoomed.depth) return isWithin(zoomed, one);
  return one.value / zoomed.value >= LEAST_SHARE && isWithin(one, zoomed);
}

function Bar({ at, frame, zoomed, text, zoom, see }) {
  const isAbove = frame.depth <= zoomed.depth;
  const all = zoomed.value || 1;
  const root = rootOf(frame).value || 1;
  const left = isAbove ? 0 : ((frame.left - zoomed.left) * root) / all;
  const width = isAbove ? 1 : frame.value / all;
  const isFound = text !== "" && frame.depth > 0 && frame.name.toLowerCase().includes(text);
  return html`
    <button
      data-at=${at} class=${classes("frame", isOwn(frame) ? "own" : "program", frame.depth === 0 && "root", isFound && "found", frame.depth < zoomed.depth && "above")}
      style=${{ left: `${left * 100}%`, width: `${width * 100}%`, top: `${frame.depth * 21}px` }} tabindex=${frame === zoomed ? 0 : -1}
      aria-label=${told(frame)} onClick=${() => zoom(frame)} onMouseEnter=${() => see(frame)} onFocus=${() => see(frame)} onBlur=${() => see(null)}
    >
      ${width > 0.02 && frame.name}
    </button>
  `;
}

function rootOf(/** @type {Frame} */ frame) {
  let one = frame;
  while (one.parent) one = one.parent;
  return one;
}

/** Arrows: to the frame that calls, to the one that is called most, to the neighbours. */
function walk(/** @type {KeyboardEvent} */ event, /** @type {Frame[]} */ shown) {
  const place = /** @type {HTMLElement} */ (event.currentTarget);
  const at = Number(/** @type {HTMLElement} */ (document.activeElement).dataset.at ?? -1);
  const frame = shown[at];
  if (!frame) return;
  const row = shown.filter((one) => one.depth === frame.depth).sort((a, b) => a.left - b.left);
  const next = /** @type {Record<string, () => Frame | null | undefined>} */ ({
    ArrowUp: () => frame.parent,
    ArrowDown: () => frame.children.find((one) => shown.includes(one)),
    ArrowLeft: () => row[row.indexOf(frame) - 1],
    ArrowRight: () => row[row.indexOf(frame) + 1],
  })[event.key];
  if (!next) return;
  event.preventDefault();
  const one = next();
  if (one) /** @type {HTMLElement | null} */ (place.querySelector(`[data-at="${shown.indexOf(one)}"]`))?.focus();
}
