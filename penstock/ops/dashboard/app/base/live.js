// @ts-check
/**
 * The live connection: one stream tells the answers of all paths that components of the page use. Components call `useLive(path)`.
 *
 * The stream is closed while nobody sees the page. Answers stay when it breaks, and when a job or the driver ends.
 */

import { useEffect, useLayoutEffect, useRef, useState } from "./html.js";
import { ask, credentials, fetched, ServerError } from "./server.js";

/**
 * What a path answered. `at`: when, by this machine's clock.
 * @typedef {{ body: any, status: number, errors: string[], at: number }} Told
 * @typedef {"connecting" | "live" | "paused" | "lost" | "refused" | "archive"} State
 * @typedef {{ state: State, intervalMs: number, at: number, since: number, retryAt: number }} Connection
 */

export const INTERVALS_MS = [1000, 2000, 5000, 10000];
const INTERVAL = "penstock.interval";
/** Until the driver has said its `web.refresh-interval`: the default of that. */
const USUAL_MS = 3000;
const MOST_KEPT = 60;
const RETRIES_MS = [500, 1000, 2000, 5000];

class Feed {
  constructor() {
    /** @type {Map<string, Set<() => void>>} */
    this.wanted = new Map();
    /** @type {Map<string, Told>} newest last */
    this.told = new Map();
    /** @type {Set<() => void>} */
    this.watchers = new Set();
    const intervalMs = Number(localStorage.getItem(INTERVAL)) || USUAL_MS;
    /** @type {Connection} */
    this.connection = { state: "connecting", intervalMs, at: 0, since: Date.now(), retryAt: 0 };
    this.isArchive = false;
    this.failures = 0;
    /** @type {AbortController | null} */
    this.stream = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.planned = undefined;
    document.addEventListener("visibilitychange", () => this.plan());
  }

  /** The paths change together when a page changes: connect once for all of them. */
  plan(afterMs = this.stream === null ? 0 : 10) {
    clearTimeout(this.planned);
    this.planned = setTimeout(() => this.connect(), afterMs);
  }

  async connect() {
    this.stream?.abort();
    this.stream = null;
    if (document.hidden || this.connection.state === "paused" || this.wanted.size === 0) return;
    const control = new AbortController();
    this.stream = control;
    try {
      await (this.isArchive ? this.readArchive(control.signal) : this.read(control.signal));
      if (!control.signal.aborted && !this.isArchive) throw new ServerError(0, ["The stream has ended."]);
    } catch (error) {
      if (control.signal.aborted) return;
      const status = error instanceof ServerError ? error.status : 0;
      const wait = RETRIES_MS[Math.min(this.failures++, RETRIES_MS.length - 1)];
      this.set(status === 401 ? "refused" : "lost", { retryAt: Date.now() + wait });
      if (status !== 401) this.plan(wait);
    }
  }

  async read(/** @type {AbortSignal} */ signal) {
    const query = new URLSearchParams({ interval: String(this.connection.intervalMs) });
    for (const path of this.wanted.keys()) query.append("path", path);
    const answer = await fetched(`/live?${query}`, { signal, headers: credentials() });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done || signal.aborted) return;
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = /** @type {string} */ (events.pop());
      for (const event of events) this.take(event);
    }
  }

  take(/** @type {string} */ event) {
    const [name, data] = event.split("\n", 2).map((line) => line.slice(line.indexOf(": ") + 2));
    if (name === "round") {
      this.failures = 0;
      this.set("live", { at: Date.now() });
    } else {
      const { path, status, body } = JSON.parse(data);
      this.keep(path, status, body);
    }
  }

  /** A server of archives has no stream, for nothing changes there. */
  async readArchive(/** @type {AbortSignal} */ signal) {
    for (const path of this.wanted.keys()) {
      if (this.told.has(path)) continue;
      try {
        this.keep(path, 200, await ask(path, { signal }));
      } catch (error) {
        if (!(error instanceof ServerError) || error.status === 0) throw error;
        this.keep(path, error.status, { errors: error.texts });
      }
    }
    this.set("archive", { at: Date.now() });
  }

  keep(/** @type {string} */ path, /** @type {number} */ status, /** @type {any} */ body) {
    const errors = status < 400 ? [] : (body.errors ?? []);
    const former = this.told.get(path);
    this.told.delete(path);
    const isGone = status >= 400 && former !== undefined && former.body !== null;
    this.told.set(path, { body: status < 400 ? body : isGone ? former.body : null, status, errors, at: Date.now() });
    for (const old of [...this.told.keys()].slice(0, Math.max(0, this.told.size - MOST_KEPT))) {
      if (!this.wanted.has(old)) this.told.delete(old);
    }
    for (const tell of this.wanted.get(path) ?? []) tell();
  }

  set(/** @type {State} */ state, /** @type {Partial<Connection>} */ more = {}) {
    const since = state === this.connection.state ? this.connection.since : Date.now();
    this.connection = { ...this.connection, ...more, state, since };
    for (const tell of this.watchers) tell();
  }

  want(/** @type {string} */ path, /** @type {() => void} */ tell) {
    const known = this.wanted.get(path) ?? new Set();
    if (known.size === 0) this.plan();
    this.wanted.set(path, known.add(tell));
  }

  leave(/** @type {string} */ path, /** @type {() => void} */ tell) {
    const known = this.wanted.get(path);
    known?.delete(tell);
    if (known?.size === 0) {
      this.wanted.delete(path);
      this.plan();
    }
  }
}

const feed = new Feed();

/** This server only knows jobs that have ended. */
export function beArchive() {
  feed.isArchive = true;
}

/** The time between two rounds, for people who have not chosen one. */
export function usually(/** @type {number} */ intervalMs) {
  if (localStorage.getItem(INTERVAL) !== null || feed.connection.intervalMs === intervalMs) return;
  feed.set(feed.connection.state, { intervalMs });
  feed.plan();
}

/**
 * What a path answers, always the newest. Null: nothing yet. `path` null: nothing is wanted.
 * @param {string | null} path
 * @returns {Told | null}
 */
export function useLive(path) {
  const [, setRound] = useState(0);
  // Before the page is painted, so that its answers are on their way meanwhile.
  useLayoutEffect(() => {
    if (path === null) return;
    const tell = () => setRound((round) => round + 1);
    feed.want(path, tell);
    return () => feed.leave(path, tell);
  }, [path]);
  return path === null ? null : (feed.told.get(path) ?? null);
}

/**
 * The same, but a former answer stays until the next one is there. For what follows the newest thing, whose path changes.
 * @param {string | null} path
 * @param {boolean} isFollowing
 * @returns {Told | null}
 */
export function useFollowed(path, isFollowing) {
  const told = useLive(path);
  const last = useRef(told);
  if (told !== null || !isFollowing) last.current = told;
  return last.current;
}

/**
 * Ask these paths from the beginning. Parts of a page that are shown only when other answers are there would else ask one after the other.
 * @param {string[]} paths
 */
export function useAhead(paths) {
  useLayoutEffect(() => {
    const tell = () => {};
    for (const path of paths) feed.want(path, tell);
    return () => paths.forEach((path) => feed.leave(path, tell));
  }, [paths.join("\n")]);
}

/** The state of the connection, as a state of the component. */
export function useConnection() {
  const [connection, setConnection] = useState(feed.connection);
  useEffect(() => {
    const tell = () => setConnection(feed.connection);
    feed.watchers.add(tell);
    tell();
    return () => void feed.watchers.delete(tell);
  }, []);
  return connection;
}

export function pause() {
  feed.set("paused");
  feed.plan(0);
}

/** Go on after a pause, or try again at once. */
export function resume() {
  feed.set(feed.isArchive ? "archive" : "connecting");
  feed.plan(0);
}

export function setIntervalMs(/** @type {number} */ intervalMs) {
  localStorage.setItem(INTERVAL, String(intervalMs));
  feed.set(feed.connection.state, { intervalMs });
  feed.plan(0);
}
