// @ts-check
/**
 * Graphs with so many vertices that nobody can read them: vertices with as many others before them become one node.
 * A folded node tells the worst of its vertices.
 */

export const MOST_NODES = 300;

/** @typedef {{ max: number, median: number, min: number }} Spread */

/**
 * `told`: what `/jobs/:id/graph` answers. `opened`: the rank whose vertices are shown each by itself; NaN: none.
 * @param {any} told
 * @param {number} opened
 */
export function folded(told, opened) {
  if (told.nodes.length <= MOST_NODES) return told;
  const ranks = ranksOf(told);
  const place = (/** @type {string} */ id) => (ranks.get(id) === opened ? id : `rank-${ranks.get(id)}`);
  /** @type {Map<number, any[]>} */
  const groups = new Map();
  for (const node of told.nodes) {
    const rank = /** @type {number} */ (ranks.get(node.id));
    groups.set(rank, [...(groups.get(rank) ?? []), node]);
  }
  const nodes = [...groups].flatMap(([rank, ones]) => (rank === opened ? ones : [together(rank, ones)]));
  return { ...told, nodes, edges: edgesBetween(told.edges, place) };
}

/** How many edges lead to each vertex on the longest way from a source. */
function ranksOf(/** @type {any} */ told) {
  /** @type {Map<string, string[]>} */
  const inputs = new Map(told.nodes.map((/** @type {any} */ one) => [one.id, []]));
  for (const edge of told.edges) inputs.get(edge.target)?.push(edge.source);
  /** @type {Map<string, number>} */
  const ranks = new Map();
  const rank = (/** @type {string} */ id) => {
    const known = ranks.get(id);
    if (known !== undefined) return known;
    const found = Math.max(-1, ...(inputs.get(id) ?? []).map(rank)) + 1;
    ranks.set(id, found);
    return found;
  };
  for (const { id } of told.nodes) rank(id);
  return ranks;
}

/** @param {number} rank @param {any[]} ones */
function together(rank, ones) {
  const sum = (/** @type {string} */ name) => ones.reduce((total, one) => (one[name] === null ? total : (total ?? 0) + one[name]), null);
  const states = /** @type {Record<string, number>} */ ({});
  for (const one of ones) for (const [state, number] of Object.entries(one.states)) states[state] = (states[state] ?? 0) + Number(number);
  return {
    ...ones[0],
    id: `rank-${rank}`,
    rank,
    members: ones.map((one) => one.id),
    name: `${ones.length} vertices, ${rank === 0 ? "sources" : `${rank} behind the sources`}`,
    parallelism: ones.reduce((total, one) => total + one.parallelism, 0),
    states,
    busy: worst(ones, "busy"),
    "back-pressured": worst(ones, "back-pressured"),
    "records-in": sum("records-in"),
    "records-out": sum("records-out"),
    "state-bytes": sum("state-bytes"),
    total: ones[0].total && totalOf(ones),
    "watermark-lag": ones.reduce((most, one) => (one["watermark-lag"] === null ? most : Math.max(most ?? 0, one["watermark-lag"])), null),
    source: rank === 0,
    sink: ones.every((one) => one.sink),
  };
}

/** @param {any[]} ones */
function totalOf(ones) {
  const names = Object.keys(ones[0].total);
  return Object.fromEntries(names.map((name) => [name, ones.reduce((total, one) => total + one.total[name], 0)]));
}

/** @param {any[]} ones @param {string} name @returns {Spread | null} */
function worst(ones, name) {
  const known = ones.filter((one) => one[name]);
  if (known.length === 0) return null;
  return known.map((one) => one[name]).reduce((most, one) => (one.max > most.max ? one : most));
}

/** @param {any[]} edges @param {(id: string) => string} place */
function edgesBetween(edges, place) {
  /** @type {Map<string, any>} */
  const found = new Map();
  for (const edge of edges) {
    const [source, target] = [place(edge.source), place(edge.target)];
    if (source === target) continue;
    const key = `${source}>${target}`;
    const known = found.get(key);
    if (known) {
      known.bytes = known.bytes === null || edge.bytes === null ? null : known.bytes + edge.bytes;
      known.number += 1;
      known.partitioner = `${known.number} edges`;
    } else {
      found.set(key, { ...edge, source, target, input: 0, number: 1 });
    }
  }
  return [...found.values()];
}
