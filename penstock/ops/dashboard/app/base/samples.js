// @ts-check
/** Values that were told while a page is open: the server keeps no history of single metrics. Bounded: the oldest ones go. */

const MOST_SAMPLES = 1800;
/** A longer silence than so many rounds is a gap. */
const ROUNDS = 3;

export class Samples {
  constructor() {
    this.since = Date.now();
    /** @type {number[]} seconds */
    this.times = [];
    /** @type {Map<string, (number | null)[]>} by the name of what is collected */
    this.values = new Map();
  }

  /**
   * One round. What was collected before and is not told now has a gap; what is new has none before.
   * @param {number} at ms
   * @param {Map<string, number | null>} told
   * @param {number} everyMs
   */
  add(at, told, everyMs) {
    const last = this.times[this.times.length - 1];
    if (last !== undefined && at / 1000 <= last) return;
    if (last !== undefined && at / 1000 - last > (ROUNDS * everyMs) / 1000 + 1) this.push((last + at / 1000) / 2, new Map());
    this.push(at / 1000, told);
  }

  /** @param {number} at seconds @param {Map<string, number | null>} told */
  push(at, told) {
    this.times.push(at);
    for (const name of told.keys()) {
      if (!this.values.has(name)) this.values.set(name, new Array(this.times.length - 1).fill(null));
    }
    for (const [name, values] of this.values) values.push(told.get(name) ?? null);
    if (this.times.length <= MOST_SAMPLES) return;
    this.times.shift();
    for (const values of this.values.values()) values.shift();
  }

  /** Forget what is not collected any longer. */
  keep(/** @type {Set<string>} */ names) {
    for (const name of this.values.keys()) if (!names.has(name)) this.values.delete(name);
  }
}
