// @ts-check
/** From what the driver keeps over time to the lines of charts. */

import { styleOf } from "./plot.js";

/**
 * @typedef {import("../../base/history.js").History} History
 * @typedef {import("./plot.js").Series} Series
 */

/** Lines of the grid stand at round durations, in ms. */
export const DURATION_STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000,
  7_200_000, 21_600_000, 43_200_000, 86_400_000, 172_800_000, 604_800_000, 2_592_000_000, 31_536_000_000, 315_360_000_000,
];

/** The highest value. */
function highest(/** @type {(number | null)[]} */ values) {
  let found = -Infinity;
  for (const value of values) if (value !== null && value > found) found = value;
  return found;
}

/** Three quarters of the values are at most `usual`. One above this multiple of it leaves the scale, which ends at the other multiple. */
const BURST = 4;
const ROOM = 1.8;
const LEAST_VALUES = 8;

/**
 * The end of a scale for the usual values, and the highest one; null: all values fit on one scale.
 * @param {number[]} times seconds
 * @param {Series[]} series
 * @param {[from: number, to: number]} span
 */
export function usualTop(times, series, [from, to]) {
  const known = /** @type {number[]} */ ([]);
  let peak = { value: 0, at: 0 };
  for (const { values } of series) {
    for (const [place, value] of values.entries()) {
      if (value === null || value <= 0 || times[place] < from || times[place] > to) continue;
      known.push(value);
      if (value > peak.value) peak = { value, at: times[place] };
    }
  }
  if (known.length < LEAST_VALUES) return null;
  const usual = known.sort((left, right) => left - right)[Math.floor(known.length * 0.75)];
  return peak.value > BURST * usual ? { top: ROOM * usual, peak } : null;
}

/**
 * A line for each vertex, those with the highest values of the window first. A vertex looks the same in all charts.
 * @param {History} history
 * @param {{ id: string, name: string }[]} vertices
 * @param {(vertex: any) => string} figureOf
 * @param {string} why why a vertex may have no value
 * @returns {Series[]}
 */
export function lines(history, vertices, figureOf, why) {
  const made = vertices.map((vertex, place) => ({ name: vertex.name, ...styleOf({}, place), values: history.of(vertex.id, figureOf(vertex)), why }));
  return made.map((one) => ({ ...one, most: highest(one.values) })).sort((left, right) => right.most - left.most);
}

/**
 * One line of several vertices together.
 * @param {History} history
 * @param {string} figure
 * @param {(sum: number, value: number) => number} together
 * @param {Series} series its `values` are left out
 * @returns {Series}
 */
export function total(history, figure, together, series) {
  /** @type {(number | null)[]} */
  let values = history.isEmpty ? [] : new Array(history.newest - history.first + 1).fill(null);
  for (const id of history.vertices.keys()) {
    const own = history.of(id, figure);
    values = values.map((sum, place) => (own[place] === null || own[place] === undefined ? sum : sum === null ? own[place] : together(sum, Number(own[place]))));
  }
  return { ...series, values };
}

/** How the subtasks of a vertex spend their time: the stack of one second, as shares. @returns {Series[]} */
export function shares(/** @type {History} */ history, /** @type {string} */ vertex, /** @type {"mean" | "max"} */ over = "mean") {
  const of = (/** @type {string} */ name) => history.of(vertex, `${name}TimeMsPerSecond.${over}`).map((one) => (one === null ? null : one / 1000));
  return [
    { name: "idle", colour: "var(--idle)", dash: [], values: of("idle") },
    { name: "back-pressured", colour: "var(--blocked)", dash: [], hatch: true, values: of("backPressured") },
    { name: "busy", colour: "var(--busy)", dash: [], values: of("busy") },
  ];
}
