// @ts-check
/** Lanes: a row for each subtask, from left to right over time, coloured by what it did. Drawn on a canvas; who looks is told the numbers. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../../base/html.js";

const LABEL_PX = 44;
const AXIS_PX = 18;
const MOST_PX = 640;

/**
 * @typedef {{ subtask: number, busy: (number | null)[], "back-pressured": (number | null)[] }} Lane shares in percent
 * @typedef {{ row: number, step: number }} Cell
 */

/** How high a row is, so that all of them are in sight. */
export const rowPx = (/** @type {number} */ rows) => Math.max(4, Math.min(22, Math.floor(MOST_PX / Math.max(1, rows))));

/**
 * `cell`: the one that is marked. `see`: called with the one to which one points, null: none. `choose`: called with one that is clicked.
 * @param {{ lanes: Lane[], timestamps: number[], cell: Cell | null, see: (cell: Cell | null) => void, choose: (cell: Cell) => void, label: string,
 *           begin: string }} props `begin`: what stands at the left end of the axis
 */
export function Lanes({ lanes, timestamps, cell, see, choose, label, begin }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const high = rowPx(lanes.length);
  useLayoutEffect(() => {
    const box = /** @type {HTMLElement} */ (canvas.current?.parentElement);
    const observed = new ResizeObserver(([one]) => setWidth(Math.floor(one.contentRect.width)));
    observed.observe(box);
    return () => observed.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width > LABEL_PX) draw(canvas.current, { lanes, steps: timestamps.length, width, high, cell, begin });
  });
  const at = (/** @type {MouseEvent} */ event) => {
    const step = Math.floor(((event.offsetX - LABEL_PX) / (width - LABEL_PX)) * timestamps.length);
    const row = Math.floor(event.offsetY / high);
    return step >= 0 && step < timestamps.length && row >= 0 && row < lanes.length ? { row, step } : null;
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const ways = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] });
    const way = ways[event.key];
    const from = cell ?? { row: 0, step: timestamps.length - 1 };
    if (event.key === "Enter") choose(from);
    if (!way) return;
    event.preventDefault();
    const bounded = (/** @type {number} */ value, /** @type {number} */ count) => Math.max(0, Math.min(count - 1, value));
    see(cell ? { row: bounded(from.row + way[0], lanes.length), step: bounded(from.step + way[1], timestamps.length) } : from);
  };
  return html`
    <div
      class="share-lanes" tabindex="0" role="group" aria-label=${label} onKeyDown=${pressed} onMouseLeave=${() => see(null)} onBlur=${() => see(null)}
      onMouseMove=${(/** @type {MouseEvent} */ event) => see(at(event))}
      onClick=${(/** @type {MouseEvent} */ event) => {
        const found = at(event);
        if (found) choose(found);
      }}
    >
      <canvas ref=${canvas} aria-hidden="true" width="1" height="1"></canvas>
    </div>
  `;
}

/**
 * The colours as they are now: in light or in dark.
 * @returns {Record<string, string>}
 */
function coloursAt(/** @type {HTMLElement} */ place) {
  const style = getComputedStyle(place);
  const probe = document.createElement("i");
  place.append(probe);
  const found = Object.fromEntries(
    ["busy", "idle", "blocked", "card", "raised", "text", "quiet", "focus"].map((name) => {
      probe.style.color = `var(--${name})`;
      return [name, getComputedStyle(probe).color];
    }),
  );
  probe.remove();
  return { ...found, font: style.fontFamily };
}

/** Back pressure is hatched, as everywhere. */
function hatched(/** @type {CanvasRenderingContext2D} */ context, /** @type {Record<string, string>} */ colours) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const inner = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  inner.fillStyle = colours.card;
  inner.fillRect(0, 0, 6, 6);
  inner.strokeStyle = colours.blocked;
  inner.lineWidth = 2;
  for (const shift of [-6, 0, 6]) {
    inner.moveTo(shift, 6);
    inner.lineTo(shift + 6, 0);
  }
  inner.stroke();
  return /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {{ lanes: Lane[], steps: number, width: number, high: number, cell: Cell | null, begin: string }} what
 */
function draw(canvas, what) {
  const { lanes, steps, width, high, cell } = what;
  const ratio = devicePixelRatio || 1;
  const height = lanes.length * high + AXIS_PX;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(ratio, ratio);
  const colours = coloursAt(/** @type {HTMLElement} */ (canvas.parentElement));
  const pens = { ...colours, blocked: hatched(context, colours) };
  const wide = (width - LABEL_PX) / Math.max(1, steps);
  for (const [row, lane] of lanes.entries()) drawLane(context, lane, { top: row * high, wide, high: high > 6 ? high - 1 : high, pens });
  drawLabels(context, what, colours);
  if (cell) {
    context.strokeStyle = colours.focus;
    context.lineWidth = 2;
    context.strokeRect(LABEL_PX + cell.step * wide, cell.row * high, Math.max(3, wide), high);
  }
}

/**
 * Busy at the bottom, back pressure above it, the rest is idle. What is not known stays empty.
 * @param {CanvasRenderingContext2D} context
 * @param {Lane} lane
 * @param {{ top: number, wide: number, high: number, pens: any }} how
 */
function drawLane(context, lane, { top, wide, high, pens }) {
  for (const [step, busy] of lane.busy.entries()) {
    if (busy === null) continue;
    const blocked = lane["back-pressured"][step] ?? 0;
    const left = Math.round(LABEL_PX + step * wide);
    const right = Math.round(LABEL_PX + (step + 1) * wide);
    const parts = [[pens.idle, 100], [pens.blocked, Math.min(100, busy + blocked)], [pens.busy, busy]];
    for (const [pen, share] of parts) {
      context.fillStyle = pen;
      context.fillRect(left, top + high * (1 - share / 100), Math.max(1, right - left), (high * share) / 100);
    }
  }
}

/** @param {CanvasRenderingContext2D} context */
function drawLabels(context, /** @type {any} */ { lanes, width, high, begin }, /** @type {any} */ colours) {
  context.fillStyle = colours.quiet;
  context.font = `${Math.min(12, Math.max(9, high))}px ${colours.font}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  const each = Math.ceil(12 / high);
  for (let row = 0; row < lanes.length; row += each) context.fillText(String(lanes[row].subtask), LABEL_PX - 6, row * high + high / 2);
  context.font = `12px ${colours.font}`;
  const bottom = lanes.length * high + AXIS_PX / 2 + 2;
  context.fillText("now", width, bottom);
  context.textAlign = "left";
  context.fillText(begin, LABEL_PX, bottom);
}
