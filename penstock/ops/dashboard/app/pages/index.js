// @ts-check
/** All pages, by their addresses. A page is a module with a component `Page`; its parameters come from the address. */

/**
 * @typedef {object} PageAt
 * @property {string} name
 * @property {string} key changes where a page must begin anew
 * @property {string} title
 * @property {Record<string, string>} parameters
 * @property {any} view what shows it; null: it is not loaded yet
 * @property {() => Promise<any>} load
 */

/** @type {[pattern: string, title: string, load: () => Promise<{ Page: any }>][]} */
const PAGES = [
  ["", "Overview", () => import("./overview.js")],
  ["jobs/:job", "Job", () => import("./job/overview.js")],
  ["jobs/:job/checkpoints", "Checkpoints", () => import("./job/checkpoints.js")],
  ["jobs/:job/rescales", "Rescales", () => import("./job/rescales.js")],
  ["jobs/:job/exceptions", "Exceptions", () => import("./job/exceptions.js")],
  ["jobs/:job/vertices/:vertex/backpressure", "Back pressure", () => import("./vertex/backpressure.js")],
  ["jobs/:job/vertices/:vertex", "Subtasks", () => import("./vertex/subtasks.js")],
  ["jobs/:job/vertices/:vertex/lanes", "Lanes", () => import("./vertex/lanes.js")],
  ["jobs/:job/vertices/:vertex/skew", "Skew", () => import("./vertex/skew.js")],
  ["jobs/:job/vertices/:vertex/flamegraph", "Flame graph", () => import("./vertex/flame.js")],
  ["jobs/:job/metrics", "Metrics", () => import("./job/metrics.js")],
  ["jobs/:job/timeline", "Timeline", () => import("./job/timeline.js")],
  ["jobs/:job/watermarks", "Watermarks", () => import("./job/watermarks.js")],
  ["jobs/:job/vertices/:vertex/metrics", "Metrics of a vertex", () => import("./vertex/metrics.js")],
  ["jobs/:job/options", "Configuration", () => import("./job/options.js")],
  ["taskmanagers", "TaskManagers", () => import("./process/taskmanagers.js")],
  ["taskmanagers/:taskmanager", "TaskManager", () => import("./process/taskmanager.js")],
  ["taskmanagers/:taskmanager/log", "Log", () => import("./process/log.js")],
  ["taskmanagers/:taskmanager/threads", "Threads", () => import("./process/threads.js")],
  ["driver", "Driver", () => import("./process/driver.js")],
  ["driver/log", "Log of the driver", () => import("./process/log.js")],
  ["driver/threads", "Threads of the driver", () => import("./process/threads.js")],
];

const NONE = () => import("./none.js");

/** @type {Map<() => Promise<any>, any>} what is loaded already */
const views = new Map();

/** @param {() => Promise<{ Page: any }>} load */
function loading(load) {
  return {
    view: views.get(load) ?? null,
    load: () =>
      load().then((one) => {
        views.set(load, one.Page);
        return one.Page;
      }),
  };
}

/**
 * @param {import("../base/address.js").Address} address
 * @returns {PageAt}
 */
export function pageOf({ path }) {
  for (const [pattern, title, load] of PAGES) {
    const parameters = matched(pattern.split("/").filter(Boolean), path);
    if (parameters) {
      const place = [parameters.job, parameters.vertex, parameters.taskmanager].join();
      return { name: pattern, key: pattern + place, title, parameters, ...loading(load) };
    }
  }
  return {
    name: "?",
    key: "?",
    title: "No such page",
    parameters: { path: path.join("/") },
    ...loading(NONE),
  };
}

/**
 * @param {string[]} pattern
 * @param {string[]} path
 * @returns {Record<string, string> | null}
 */
function matched(pattern, path) {
  if (pattern.length !== path.length) return null;
  const parameters = /** @type {Record<string, string>} */ ({});
  for (const [place, part] of pattern.entries()) {
    if (part.startsWith(":")) parameters[part.slice(1)] = path[place];
    else if (part !== path[place]) return null;
  }
  return parameters;
}
