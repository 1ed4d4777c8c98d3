// @ts-check
/**
 * A log file as a page has it: some of its lines, in one piece. The end is loaded first, older parts when somebody asks for them.
 *
 * What is kept is bounded: who goes back far enough loses the end, and gets it again by going there.
 */

import { askFile } from "../../base/server.js";

export const PIECE_BYTES = 256 * 1024;
export const MOST_BYTES = 8 * 1024 * 1024;
const NEWLINE = 10;
const LEVEL = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+ (DEBUG|INFO|WARNING|ERROR|CRITICAL)\b/;
const JSON_LEVEL = /^\{.*?"level": ?"(DEBUG|INFO|WARNING|ERROR|CRITICAL)"/;

/**
 * `isFirst`: of its record; a traceback has further ones. `key`: says which line it is, also when older ones have come before it.
 * @typedef {{ text: string, level: string, isFirst: boolean, key: number }} Line
 * @typedef {{ begin: number, end: number, lines: string[] }} Piece whole lines, and the bytes that they take
 */

export class LogFile {
  /** @param {string} path where the file is given */
  constructor(path) {
    this.path = path;
    /** @type {Piece[]} oldest first, without gaps */
    this.pieces = [];
    this.total = 0;
    /** What stands behind the last newline: a line that is being written. */
    this.rest = "";
    this.hasEnd = true;
    this.name = "";
    this.firstKey = 0;
    /** @type {Line[] | null} */
    this.known = null;
  }

  get begin() {
    return this.pieces[0]?.begin ?? 0;
  }

  get end() {
    return this.pieces[this.pieces.length - 1]?.end ?? 0;
  }

  /** Load the end, and forget what was loaded before. */
  async loadEnd(/** @type {AbortSignal} */ signal) {
    const part = await askFile(this.path, { from: -PIECE_BYTES, signal });
    const { piece, rest } = wholeLines(part, part.begin > 0);
    this.firstKey += this.pieces.reduce((sum, one) => sum + one.lines.length, 1);
    this.pieces = [piece];
    this.take(part, rest, true);
  }

  /** Load the lines before those that are there. */
  async loadOlder(/** @type {AbortSignal} */ signal) {
    if (this.begin === 0) return;
    const from = Math.max(0, this.begin - PIECE_BYTES);
    const part = await askFile(this.path, { from, until: this.begin, signal });
    const { piece } = wholeLines(part, from > 0);
    this.pieces.unshift({ ...piece, end: this.begin });
    this.firstKey -= piece.lines.length;
    while (this.loaded() > MOST_BYTES && this.pieces.length > 2) {
      this.pieces.pop();
      this.hasEnd = false;
      this.rest = "";
    }
    this.total = part.total;
    this.known = null;
  }

  /** Load what came since, or what was lost at the end. `total`: how long the file is now. Returns whether there was something. */
  async loadNewer(/** @type {number} */ total, /** @type {AbortSignal} */ signal) {
    if (total < this.end) {
      await this.loadEnd(signal); // A new file has taken the place of this one.
      return true;
    }
    if (total <= this.end + encodedLength(this.rest)) return false;
    const until = Math.min(total, this.end + PIECE_BYTES);
    const part = await askFile(this.path, { from: this.end, until, signal });
    const { piece, rest } = wholeLines(part, false);
    this.pieces.push(piece);
    while (this.loaded() > MOST_BYTES && this.pieces.length > 2) {
      this.firstKey += /** @type {Piece} */ (this.pieces.shift()).lines.length;
    }
    this.take(part, rest, part.end >= part.total);
    return true;
  }

  take(/** @type {import("../../base/server.js").Part} */ part, /** @type {string} */ rest, /** @type {boolean} */ hasEnd) {
    this.total = part.total;
    this.name = part.name || this.name;
    this.rest = rest;
    this.hasEnd = hasEnd;
    this.known = null;
  }

  /** How many bytes are kept. */
  loaded() {
    return this.end - this.begin;
  }

  /** All lines that are kept, with their levels. */
  lines() {
    if (this.known === null) {
      const texts = this.pieces.flatMap((piece) => piece.lines);
      this.known = withLevels(this.rest && this.hasEnd ? [...texts, this.rest] : texts, this.firstKey);
    }
    return this.known;
  }
}

/**
 * The whole lines of a part. `isCut`: its first line begins before it, and is left to the part before.
 * @param {import("../../base/server.js").Part} part
 * @param {boolean} isCut
 * @returns {{ piece: Piece, rest: string }}
 */
function wholeLines({ bytes, begin }, isCut) {
  const first = isCut ? bytes.indexOf(NEWLINE) + 1 : 0; // A line longer than a part stays cut.
  const last = bytes.lastIndexOf(NEWLINE) + 1;
  const decoder = new TextDecoder();
  const whole = decoder.decode(bytes.subarray(first, Math.max(first, last)));
  const lines = whole === "" ? [] : whole.replace(/\n$/, "").split("\n");
  return { piece: { begin: begin + first, end: begin + Math.max(first, last), lines }, rest: decoder.decode(bytes.subarray(Math.max(first, last))) };
}

/**
 * Lines without a level of their own belong to the record before them.
 * @param {string[]} texts
 * @param {number} firstKey
 * @returns {Line[]}
 */
function withLevels(texts, firstKey) {
  let level = "";
  return texts.map((text, place) => {
    const found = LEVEL.exec(text) ?? JSON_LEVEL.exec(text);
    if (found) level = found[1];
    return { text, level, isFirst: found !== null, key: firstKey + place };
  });
}

const encodedLength = (/** @type {string} */ text) => new TextEncoder().encode(text).length;
