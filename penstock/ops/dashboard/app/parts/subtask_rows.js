// @ts-check
/** What an archive tells of the subtasks of a vertex, in the form of the table that a driver gives. Figures of a moment are not kept. */

const UNASSIGNED = "(unassigned)";

/** @param {any} one a subtask as Flink's path tells it */
function rowOf(one) {
  const { metrics } = one;
  const known = (/** @type {number} */ value) => (value < 0 ? null : value);
  return {
    subtask: one.subtask,
    attempt: one.attempt,
    state: one.status,
    endpoint: one.endpoint === UNASSIGNED ? null : one.endpoint,
    "taskmanager-id": null,
    slot: null,
    "records-in-total": metrics["read-records-complete"] ? metrics["read-records"] : null,
    "records-out-total": metrics["write-records-complete"] ? metrics["write-records"] : null,
    duration: known(one.duration),
    attempts: one.attempt + 1,
    "state-durations": Object.fromEntries(Object.entries(one["status-duration"]).map(([state, ms]) => [state, known(ms)])),
  };
}

const NAMES = ["records-in-total", "records-out-total", "duration", "attempts"];

/**
 * @param {any} body of `/jobs/:id/vertices/:id`
 * @param {Record<string, string>} query
 * @param {number} offset
 * @param {number} limit
 */
export function archivedTable(body, query, offset, limit) {
  const rows = body.subtasks.map(rowOf).filter((/** @type {any} */ one) => !query.state || one.state === query.state);
  const sort = query.sort ?? "subtask";
  const sign = query.order === "desc" ? -1 : 1;
  rows.sort((/** @type {any} */ left, /** @type {any} */ right) => {
    const [a, b] = [left[sort], right[sort]];
    if (a == null || b == null) return Number(a == null) - Number(b == null);
    return a < b ? -sign : a > b ? sign : 0;
  });
  const why = Object.fromEntries(NAMES.map((name) => [name, "The archive does not tell it."]));
  const quantiles = Object.fromEntries(NAMES.map((name) => [name, spreadOf(rows.map((/** @type {any} */ one) => one[name]))]));
  return { total: rows.length, subtasks: rows.slice(offset, offset + limit), quantiles, why };
}

function spreadOf(/** @type {(number | null)[]} */ values) {
  const known = /** @type {number[]} */ (values.filter((one) => one !== null)).sort((a, b) => a - b);
  if (known.length === 0) return null;
  const middle = (known.length - 1) / 2;
  return { min: known[0], median: (known[Math.floor(middle)] + known[Math.ceil(middle)]) / 2, max: known[known.length - 1] };
}
