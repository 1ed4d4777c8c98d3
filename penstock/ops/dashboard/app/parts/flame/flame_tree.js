// @ts-check
/** The samples of a flame graph: where each frame stands, and how much of the time it has. Knows no drawing. */

/**
 * @typedef {{ name: string, value: number, children: Tree[] }} Tree as the server gives it
 * @typedef {object} Frame
 * @property {string} key depth and name: says which frame it is also in the next samples
 * @property {string} name
 * @property {number} depth 0: all samples
 * @property {number} value in how many samples it was
 * @property {number} own in how many of them it was the innermost one
 * @property {number} left where it begins, as a share of all samples
 * @property {Frame | null} parent
 * @property {Frame[]} children
 */

/**
 * All frames, with those that call before those that are called. Without recursion, because stacks can be deep.
 * @param {Tree} tree
 * @returns {Frame[]}
 */
export function framesOf(tree) {
  const root = frameOf(tree, 0, 0, null);
  const found = [root];
  const total = Math.max(1, tree.value);
  /** @type {[Tree, Frame][]} */
  const left = [[tree, root]];
  for (let next = left.pop(); next; next = left.pop()) {
    const [from, frame] = next;
    let begin = frame.left;
    for (const child of from.children) {
      const one = frameOf(child, frame.depth + 1, begin, frame);
      begin += child.value / total;
      frame.children.push(one);
      found.push(one);
      left.push([child, one]);
    }
  }
  return found;
}

/**
 * @param {Tree} tree
 * @param {number} depth
 * @param {number} left
 * @param {Frame | null} parent
 * @returns {Frame}
 */
function frameOf(tree, depth, left, parent) {
  const inner = tree.children.reduce((sum, one) => sum + one.value, 0);
  const name = depth === 0 ? "all samples" : tree.name;
  return { key: `${depth}~${name}`, name, depth, value: tree.value, own: tree.value - inner, left, parent, children: [] };
}

/** The frame with a key; of several the one with most samples. Without one: all samples. */
export function frameAt(/** @type {Frame[]} */ frames, /** @type {string | undefined} */ key) {
  const found = frames.filter((one) => one.key === key).sort((a, b) => b.value - a.value);
  return found[0] ?? frames[0];
}

/** Whether a frame is the other one, or is called by it. */
export function isWithin(/** @type {Frame} */ frame, /** @type {Frame} */ other) {
  /** @type {Frame | null} */
  let one = frame;
  while (one !== null && one.depth > other.depth) one = one.parent;
  return one === other;
}

/** In how many samples some frame has this text. A frame that calls another such one counts once. */
export function samplesWith(/** @type {Frame} */ root, /** @type {string} */ text) {
  let sum = 0;
  const left = [root];
  for (let one = left.pop(); one; one = left.pop()) {
    if (one.depth > 0 && one.name.toLowerCase().includes(text)) sum += one.value;
    else left.push(...one.children);
  }
  return sum;
}

/** Whose code a frame is: Penstock's own, or that of the program and its libraries. */
export const isOwn = (/** @type {Frame} */ frame) => frame.name.startsWith("penstock.");
