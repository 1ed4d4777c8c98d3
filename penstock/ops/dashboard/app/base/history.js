// @ts-check
/**
 * Figures over time, as the driver keeps them: one row a second for 10 minutes, one row each 10 seconds for 6 hours.
 *
 * What is known already is not asked for again, and memory is bounded: rows older than the window go. All components that want the same
 * figures share them. They are asked for once in a round of the live connection, so they pause and break with it.
 */

import { useEffect, useState } from "./html.js";
import { useConnection } from "./live.js";
import { ask, ServerError } from "./server.js";

/** @typedef {"10m" | "6h"} Window */

/** @type {Record<Window, { stepMs: number, rows: number, title: string }>} */
export const WINDOWS = {
  "10m": { stepMs: 1000, rows: 600, title: "10 minutes, each second" },
  "6h": { stepMs: 10_000, rows: 2160, title: "6 hours, each 10 s" },
};

/** So many histories stay when pages change. */
const MOST_KEPT = 4;

/** One set of figures: of one job or one vertex, in one resolution. A row has its place by its time, so a gap is a row without values. */
export class History {
  /**
   * @param {string[]} paths of the server, without their query
   * @param {Window} window
   * @param {readonly string[]} figures
   * @param {readonly string[]} only ids of vertices; empty: all of them
   */
  constructor(paths, window, figures, only) {
    this.paths = paths;
    this.figures = figures;
    this.only = only;
    this.stepMs = WINDOWS[window].stepMs;
    this.rows = WINDOWS[window].rows;
    /** The driver's clock, and the slots (times divided by the step) of the first and the newest row. */
    this.now = 0;
    this.first = Infinity;
    this.newest = -Infinity;
    /** @type {Map<string, { id: string, name: string, values: Record<string, Float32Array> }>} */
    this.vertices = new Map();
    /** @type {string | null} why there is nothing */
    this.error = null;
    this.version = 0;
    this.askedAt = 0;
    this.isAsking = false;
    /** @type {Set<() => void>} */
    this.watchers = new Set();
  }

  /** Ask for what is new, unless that was done a moment ago. */
  async refresh() {
    const soonest = this.askedAt + Math.min(this.stepMs, 5000) * 0.9;
    if (this.isAsking || Date.now() < soonest) return;
    this.isAsking = true;
    this.askedAt = Date.now();
    // The newest row is asked for again: a vertex may have got its own a little later.
    const since = this.newest > 0 ? (this.newest - 1) * this.stepMs : 0;
    const query = new URLSearchParams({ step: String(this.stepMs), since: String(since), get: this.figures.join(",") });
    if (this.only.length) query.set("vertices", this.only.join(","));
    try {
      for (const path of this.paths) this.take(await ask(`${path}?${query}`));
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      if (error.status) this.error = error.message; // Nobody answers: the shell tells it.
    } finally {
      this.isAsking = false;
    }
    this.version++;
    for (const tell of this.watchers) tell();
  }

  take(/** @type {any} */ body) {
    this.error = null;
    this.now = body.now;
    this.stepMs = body.step; // An archive has one resolution only.
    for (const told of body.vertices ?? [body]) this.takeVertex(told);
    this.first = Math.max(this.first, this.newest - this.rows + 1);
  }

  takeVertex(/** @type {any} */ told) {
    const kept = this.vertices.get(told.id) ?? { id: told.id, name: told.name, values: {} };
    this.vertices.set(told.id, kept);
    if (told.timestamps.length === 0) return;
    const slots = told.timestamps.map((/** @type {number} */ at) => Math.floor(at / this.stepMs));
    this.reach(slots[slots.length - 1]);
    this.first = Math.min(this.first, slots[0]);
    for (const name of this.figures) {
      const values = (kept.values[name] ??= new Float32Array(this.rows).fill(NaN));
      const given = told.figures[name] ?? [];
      for (const [place, slot] of slots.entries()) {
        if (slot > this.newest - this.rows) values[slot % this.rows] = given[place] ?? NaN;
      }
    }
  }

  /** Make room up to a slot: what stood there is older than the window. */
  reach(/** @type {number} */ slot) {
    if (slot <= this.newest) return;
    const from = Math.max(this.newest + 1, slot - this.rows + 1);
    for (const { values } of this.newest > 0 ? this.vertices.values() : []) {
      for (const ring of Object.values(values)) {
        for (let next = from; next <= slot; next++) ring[next % this.rows] = NaN;
      }
    }
    this.newest = slot;
    this.first = Math.max(this.first, slot - this.rows + 1);
  }

  get isEmpty() {
    return this.newest < this.first;
  }

  /** The times of all rows, in seconds. */
  times() {
    return this.isEmpty ? [] : Array.from({ length: this.newest - this.first + 1 }, (_, place) => ((this.first + place) * this.stepMs) / 1000);
  }

  /**
   * A figure of a vertex at these times. Null: it was not known.
   * @param {string} vertex
   * @param {string} figure
   * @returns {(number | null)[]}
   */
  of(vertex, figure) {
    const ring = this.vertices.get(vertex)?.values[figure];
    if (this.isEmpty) return [];
    return Array.from({ length: this.newest - this.first + 1 }, (_, place) => {
      const value = ring?.[(this.first + place) % this.rows] ?? NaN;
      return Number.isNaN(value) ? null : value;
    });
  }

  /** The newest value that a figure had within the last few rows. */
  last(/** @type {string} */ vertex, /** @type {string} */ figure) {
    const ring = this.vertices.get(vertex)?.values[figure];
    for (let slot = this.newest; ring && slot > this.newest - 5 && slot >= this.first; slot--) {
      const value = ring[slot % this.rows];
      if (!Number.isNaN(value)) return value;
    }
    return null;
  }
}

/** What of a job is asked for of all its vertices. */
export const OF_A_JOB = ["numRecordsInPerSecond", "numRecordsOutPerSecond", "busyTimeMsPerSecond.max", "backPressuredTimeMsPerSecond.max"];

/** All figures that the driver keeps of a vertex. Rates per second, shares in ms of a second, times in ms, sizes in bytes. */
export const OF_A_VERTEX = [
  "numRecordsInPerSecond",
  "numRecordsOutPerSecond",
  "numBytesInPerSecond",
  "numBytesOutPerSecond",
  "watermarkLag",
  "stateSize",
  "checkpointDuration",
  "busyTimeMsPerSecond.mean",
  "busyTimeMsPerSecond.max",
  "backPressuredTimeMsPerSecond.mean",
  "backPressuredTimeMsPerSecond.max",
  "idleTimeMsPerSecond.mean",
  "idleTimeMsPerSecond.max",
];

/** @type {Map<string, History>} newest last; those that nobody uses go when there are too many */
const histories = new Map();

/**
 * @param {string} job
 * @param {string | null} vertex
 * @param {Window} window
 * @param {readonly string[]} figures
 * @param {readonly string[]} only
 * @param {boolean} isArchive
 */
function historyOf(job, vertex, window, figures, only, isArchive) {
  // An archive has all figures of a vertex at its own path, and few of them at that of the job.
  const vertices = vertex === null ? (isArchive ? only : []) : [vertex];
  const paths = vertices.length ? vertices.map((one) => `/jobs/${job}/vertices/${one}/history`) : [`/jobs/${job}/history`];
  const key = [...paths, window, ...figures, ...only].join(" ");
  const known = histories.get(key) ?? new History(paths, window, figures, only);
  histories.delete(key);
  histories.set(key, known);
  for (const [old, one] of [...histories].slice(0, Math.max(0, histories.size - MOST_KEPT))) {
    if (one.watchers.size === 0) histories.delete(old);
  }
  return known;
}

/**
 * Figures over time of the vertices of a job, or of one vertex. The component is drawn again when rows come.
 * @param {string} job
 * @param {string | null} vertex null: all vertices
 * @param {Window} window
 * @param {{ figures?: readonly string[], only?: readonly string[] }} [which] `figures`: the usual ones unless they are given;
 *   `only`: ids of vertices of a job; empty: all of them
 * @returns {History}
 */
export function useHistory(job, vertex, window, { figures = vertex === null ? OF_A_JOB : OF_A_VERTEX, only = [] } = {}) {
  const connection = useConnection();
  const [, setVersion] = useState(0);
  const history = historyOf(job, vertex, window, figures, only, connection.state === "archive");
  useEffect(() => {
    const tell = () => setVersion((version) => version + 1);
    history.watchers.add(tell);
    return () => void history.watchers.delete(tell);
  }, [history]);
  useEffect(() => void history.refresh(), [history, connection.at]);
  return history;
}
