// @ts-check
/** What uPlot is told to draw a time chart: colours of the theme, axes with units, marks. It knows no component. */

import { time } from "../../base/format.js";
import uPlot from "../../../vendor/uplot.js";

/**
 * One line of a chart. `colour`: a colour of the theme as CSS has it. `dash`: lengths in px. `hatch`: the area below a stacked line is hatched.
 * @typedef {{ name: string, values: (number | null)[], colour?: string, dash?: number[], hatch?: boolean, why?: string }} Series
 * @typedef {"restart" | "failure" | "rescale" | "checkpoint" | "savepoint" | "restore"} MarkKind
 * @typedef {{ at: number, kind: MarkKind, text: string, href?: string }} Mark `at` in ms
 */

/** What a chart shows now; the options below look here each time it is drawn. */
export class View {
  constructor() {
    /** @type {Series[]} */
    this.series = [];
    /** @type {number[]} seconds */
    this.times = [];
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {[from: number, to: number]} seconds */
    this.span = [0, 1];
    /** @type {(value: number | null) => string} */
    this.format = String;
    /** @type {number | null} the highest value that can be; null: as the values are */
    this.top = null;
  }
}

/** Lines that stand for no state take these in turn: colour and dash together tell them apart. */
const COLOURS = ["var(--good)", "var(--busy)", "var(--blocked)", "var(--waiting)", "var(--quiet)"];
const DASHES = [[], [6, 3], [2, 3]];

/** How the line at a place is drawn, unless it says so itself. */
export function styleOf(/** @type {{ colour?: string, dash?: number[] }} */ series, /** @type {number} */ place) {
  return {
    colour: series.colour ?? COLOURS[place % COLOURS.length],
    dash: series.dash ?? DASHES[Math.floor(place / COLOURS.length) % DASHES.length],
  };
}

/** @type {Record<MarkKind, { sign: string, colour: string, dash: number[], name: string }>} */
export const MARKS = {
  restart: { sign: "\u21bb", colour: "var(--waiting)", dash: [], name: "restart" },
  failure: { sign: "\u2715", colour: "var(--failed)", dash: [], name: "failure" },
  rescale: { sign: "\u21d4", colour: "var(--good)", dash: [], name: "rescale" },
  checkpoint: { sign: "\u25c7", colour: "var(--failed)", dash: [3, 3], name: "failed checkpoint" },
  savepoint: { sign: "\u25c6", colour: "var(--good)", dash: [3, 3], name: "savepoint" },
  restore: { sign: "\u21ba", colour: "var(--waiting)", dash: [3, 3], name: "restored" },
};

/** @type {Map<string, string>} */
const resolved = new Map();
/** @type {CanvasPattern | null} */
let hatched = null;
/** @type {Set<() => void>} */
const themed = new Set();

/** Call when the colours change. Returns how to stop that. */
export function onTheme(/** @type {() => void} */ tell) {
  themed.add(tell);
  return () => void themed.delete(tell);
}

function forget() {
  resolved.clear();
  hatched = null;
  for (const tell of themed) tell();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget);
new MutationObserver(forget).observe(document.documentElement, { attributeFilter: ["data-theme"] });

/** A canvas knows no custom properties: ask the page what a colour is now. */
export function colour(/** @type {string} */ css) {
  const known = resolved.get(css);
  if (known) return known;
  const probe = document.createElement("span");
  probe.style.color = css;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  resolved.set(css, found);
  return found;
}

/** The area of what is back-pressured: the same hatch as in bars and in the graph. */
function hatch(/** @type {CanvasRenderingContext2D} */ context, /** @type {string} */ css) {
  if (hatched) return hatched;
  const size = 6 * devicePixelRatio;
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
  pen.fillStyle = colour("var(--card)");
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colour(css);
  pen.lineWidth = size / 3;
  pen.beginPath();
  for (const shift of [-size, 0, size]) {
    pen.moveTo(shift, size);
    pen.lineTo(shift + size, 0);
  }
  pen.stroke();
  hatched = /** @type {CanvasPattern} */ (context.createPattern(tile, "repeat"));
  return hatched;
}

/** All charts of a page have their axes at the same place. */
const LEFT_PX = 68;
const RIGHT_PX = 8;
const HALF_CLOCK_PX = 24;
const FONT = '11px system-ui, "Segoe UI", Roboto, "Noto Sans", sans-serif';

/**
 * @param {View} view
 * @param {{ width: number, height: number, isStacked: boolean, hasTimes: boolean, steps?: number[],
 *           moved: (at: number | null) => void, zoomed: (from: number | null, to: number | null) => void }} how
 */
export function optionsOf(view, { width, height, isStacked, hasTimes, steps, moved, zoomed }) {
  const axis = { font: FONT, stroke: () => colour("var(--quiet)"), ticks: { show: false } };
  const grid = { stroke: () => colour("var(--line)"), width: 1 };
  return {
    width,
    height,
    legend: { show: false },
    padding: [16, RIGHT_PX, hasTimes ? 0 : 4, 0],
    scales: {
      x: { time: true, range: () => view.span },
      y: { range: (/** @type {uPlot} */ _, /** @type {number} */ low, /** @type {number} */ high) => upTo(view.top, low, high) },
    },
    axes: [
      { ...axis, grid, show: true, size: hasTimes ? 22 : 0, space: 84, gap: 4, values: hasTimes ? clocks : () => [] },
      { ...axis, grid, size: LEFT_PX, space: 30, gap: 6, incrs: steps, values: (/** @type {uPlot} */ _, /** @type {number[]} */ all) => all.map((one) => view.format(one)) },
    ],
    series: [{}, ...view.series.map((one, place) => lineOf(one, place, isStacked))],
    cursor: {
      y: false,
      points: { size: 6, fill: (/** @type {uPlot} */ _, /** @type {number} */ place) => colour(styleOf(view.series[place - 1], place - 1).colour) },
      drag: { setScale: false, x: true, y: false, dist: 4 },
      bind: { dblclick: () => () => (zoomed(null, null), null) },
    },
    hooks: {
      setCursor: [(/** @type {uPlot} */ plot) => moved(plot.cursor.idx == null ? null : view.times[plot.cursor.idx])],
      setSelect: [(/** @type {uPlot} */ plot) => selected(plot, zoomed)],
      draw: [(/** @type {uPlot} */ plot) => drawMarks(plot, view.marks)],
    },
  };
}

function lineOf(/** @type {Series} */ series, /** @type {number} */ place, /** @type {boolean} */ isStacked) {
  const { colour: css, dash } = styleOf(series, place);
  const soft = `color-mix(in srgb, ${css} 55%, var(--card))`;
  const area = (/** @type {uPlot} */ plot) => (series.hatch ? hatch(plot.ctx, soft) : colour(series.name === "idle" ? css : soft));
  return {
    label: series.name,
    stroke: () => colour(css),
    dash: dash.length ? dash : undefined,
    width: isStacked ? 1 : 1.5,
    fill: isStacked ? area : undefined,
    points: { size: 4, fill: () => colour(css), show: () => false, filter: alone },
  };
}

/** Where a value has none before and behind it: no line goes there, so it is drawn as a point. */
export function alone(/** @type {uPlot} */ plot, /** @type {number} */ place) {
  const values = plot.data[place];
  return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
}

/** @returns {[number, number]} */
function upTo(/** @type {number | null} */ top, /** @type {number} */ low, /** @type {number} */ high) {
  if (top !== null) return [0, top];
  const highest = Number.isFinite(high) && high > 0 ? high * 1.06 : 1;
  return [Number.isFinite(low) && low < 0 ? low * 1.06 : 0, highest];
}

/** A time that would be cut at an end of the axis is left out. */
function clocks(/** @type {uPlot} */ plot, /** @type {number[]} */ all, /** @type {number} */ _axis, /** @type {number} */ _space, /** @type {number} */ step) {
  const { min, max } = plot.scales.x;
  const wide = plot.width - LEFT_PX - RIGHT_PX;
  return all.map((at) => {
    const left = ((at - Number(min)) / (Number(max) - Number(min))) * wide;
    if (left < HALF_CLOCK_PX || left > wide + RIGHT_PX - HALF_CLOCK_PX) return "";
    const clock = time(at * 1000).slice(-8);
    return step < 60 ? clock : clock.slice(0, 5);
  });
}

function selected(/** @type {uPlot} */ plot, /** @type {(from: number | null, to: number | null) => void} */ zoomed) {
  const { left, width } = plot.select;
  if (width < 4) return;
  const [from, to] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoomed(from, to);
}

/** A line from top to bottom at each mark, and its sign above it where there is room. */
function drawMarks(/** @type {uPlot} */ plot, /** @type {Mark[]} */ marks) {
  const { ctx: pen, bbox } = plot;
  const ratio = devicePixelRatio;
  let free = -Infinity;
  pen.save();
  pen.font = `${11 * ratio}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "bottom";
  for (const { at, kind } of marks) {
    const x = Math.round(plot.valToPos(at / 1000, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    const { sign, colour: css, dash } = MARKS[kind];
    pen.strokeStyle = pen.fillStyle = colour(css);
    pen.lineWidth = ratio;
    pen.setLineDash(dash.map((one) => one * ratio));
    pen.beginPath();
    pen.moveTo(x, bbox.top);
    pen.lineTo(x, bbox.top + bbox.height);
    pen.stroke();
    if (x < free) continue;
    pen.fillText(sign, x, bbox.top - ratio);
    free = x + 12 * ratio;
  }
  pen.restore();
}

/** What uPlot is given: the times, and each line; where lines are stacked each one begins where the next one ends. */
export function dataOf(/** @type {View} */ view, /** @type {boolean} */ isStacked) {
  if (!isStacked) return [view.times, ...view.series.map((one) => one.values)];
  const stacked = [];
  let below = /** @type {(number | null)[]} */ (view.times.map(() => 0));
  for (const { values } of [...view.series].reverse()) {
    below = values.map((value, place) => (value === null || below[place] === null ? null : value + Number(below[place])));
    stacked.unshift(below);
  }
  return [view.times, ...stacked];
}
