// @ts-check
/** Numbers, sizes and times as people read them: a unit always, three digits, and a word for what is not known. */

export const UNKNOWN = "n/a";
const LARGE = ["", " k", " M", " G", " T", " P"];
const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

/** @typedef {number | null | undefined} Maybe */

const isKnown = (/** @type {Maybe} */ value) => value !== null && value !== undefined && Number.isFinite(value);

/** Three digits: 0.12, 1.2, 12.3, 123. */
function short(/** @type {number} */ value) {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

function scaled(/** @type {number} */ value, /** @type {number} */ step, /** @type {string[]} */ units) {
  let place = 0;
  let left = value;
  while (Math.abs(left) >= step * 0.9995 && place < units.length - 1) {
    left /= step;
    place++;
  }
  return [short(left), units[place]];
}

/** 12.3 k */
export function count(/** @type {Maybe} */ value) {
  if (!isKnown(value)) return UNKNOWN;
  const [digits, unit] = scaled(Number(value), 1000, LARGE);
  return digits + unit;
}

/** All digits, in groups of three. */
export function exact(/** @type {Maybe} */ value) {
  return isKnown(value) ? Number(value).toLocaleString("en-GB").replaceAll(",", "\u202f") : UNKNOWN;
}

/** 12.3 k/s */
export function rate(/** @type {Maybe} */ value) {
  if (!isKnown(value)) return UNKNOWN;
  const text = count(value);
  return text.includes(" ") ? `${text}/s` : `${text} /s`;
}

/** 1.2 MB, of 1,000 kB each */
export function bytes(/** @type {Maybe} */ value) {
  return isKnown(value) ? scaled(Number(value), 1000, SIZES).join(" ") : UNKNOWN;
}

/** 1.2 MB/s */
export function byteRate(/** @type {Maybe} */ value) {
  return isKnown(value) ? `${bytes(value)}/s` : UNKNOWN;
}

/** 42 %, of a share between 0 and 1 */
export function share(/** @type {Maybe} */ value) {
  return isKnown(value) ? `${Math.round(Number(value) * 100)} %` : UNKNOWN;
}

/** 850 ms, 1.2 s, 3 m 05 s, 2 h 10 m, 3 d 4 h */
export function duration(/** @type {Maybe} */ ms) {
  if (!isKnown(ms)) return UNKNOWN;
  const value = Math.round(Number(ms));
  if (value < 0) return `\u2212${duration(-value)}`;
  if (value < 1000) return `${value} ms`;
  if (value < 59_950) return `${(value / 1000).toFixed(1)} s`;
  const seconds = Math.round(value / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${two(seconds % 60)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${two(minutes % 60)} m`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** 14:03:07, in the zone of this machine; the day is told where it is not today */
export function time(/** @type {Maybe} */ ms) {
  if (!isKnown(ms) || Number(ms) <= 0) return UNKNOWN;
  const at = new Date(Number(ms));
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? clock : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}`;
}

/** The same moment in UTC, with milliseconds: shown where the pointer rests. */
export function utc(/** @type {Maybe} */ ms) {
  return isKnown(ms) && Number(ms) > 0 ? new Date(Number(ms)).toISOString().replace("T", " ").replace("Z", " UTC") : UNKNOWN;
}

/** 1 subtask, 2 subtasks */
export function counted(/** @type {number} */ number, /** @type {string} */ noun) {
  return `${exact(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** The begin of a long id. */
export function id(/** @type {string} */ text) {
  return text.length > 12 ? `${text.slice(0, 8)}\u2026` : text;
}

const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
