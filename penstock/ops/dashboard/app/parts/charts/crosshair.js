// @ts-check
/** The moment that the pointer or the keyboard has chosen: all charts of a page show it, and their numbers are those of it. */

import { useEffect, useState } from "../../base/html.js";

export class Crosshair {
  constructor() {
    /** @type {number | null} seconds; null: nothing is chosen */
    this.at = null;
    /** @type {unknown} who has chosen it */
    this.by = null;
    /** @type {Set<() => void>} */
    this.watchers = new Set();
  }

  /** @param {number | null} at @param {unknown} by */
  move(at, by) {
    if (at === this.at) return;
    this.at = at;
    this.by = by;
    for (const tell of this.watchers) tell();
  }

  watch(/** @type {() => void} */ tell) {
    this.watchers.add(tell);
    return () => void this.watchers.delete(tell);
  }
}

/** The moment that is chosen now, as a state of the component. */
export function useMoment(/** @type {Crosshair} */ crosshair) {
  const [at, setAt] = useState(crosshair.at);
  useEffect(() => crosshair.watch(() => setAt(crosshair.at)), [crosshair]);
  return at;
}

/** The place of the time that is nearest; -1: there is none. */
export function nearest(/** @type {number[]} */ times, /** @type {number} */ at) {
  let low = 0;
  let high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low > 0 && at - times[low - 1] < times[low] - at ? low - 1 : high;
}
