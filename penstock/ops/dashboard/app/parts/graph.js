// @ts-check
/** The graph of a job: vertices from left to right, what flows between them, and how each is doing. */

import { Graph, layout } from "../../vendor/dagre.js";
import { to } from "../base/address.js";
import { byteRate, bytes, count, duration, exact, rate, UNKNOWN } from "../base/format.js";
import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../base/html.js";
import { Name } from "./chain.js";
import { Share, State } from "./common.js";
import { folded } from "./fold.js";

const NODE = { width: 236, height: 148 };
const GAPS = { nodesep: 26, ranksep: 92, marginx: 8, marginy: 16 };
const ZOOMS = { least: 0.25, most: 2, step: 1.25 };
/** A window that is wider than this shows the graph larger. */
const WIDE_PX = 2000;
/** The widest page, and what is next to a graph on it: see base.css and parts.css. */
const PAGE = { most: 3600, around: 64 };
/** Above this share of its time a vertex is outlined as back-pressured: Flink's limit for HIGH. */
const BLOCKED = 0.5;
/** Below this a watermark is not late. */
const LATE_MS = 1000;
/** So many vertices are drawn at once. */
const PIECE = 50;

/**
 * `told`: what `/jobs/:id/graph` answers. `culprit`: the vertex that limits the job. `opened`: which fold of a large graph is open.
 * @param {{ job: string, told: any, culprit: string | null, opened?: string }} props
 */
export function JobGraph({ job, told: all, culprit, opened = "" }) {
  const told = folded(all, opened ? Number(opened) : NaN);
  const shape = told.nodes.map((one) => one.id).join() + told.edges.map((one) => `${one.source}>${one.target}`).join();
  const placed = useMemo(() => place(told), [shape]);
  const { zoom, setZoom, fit } = useZoom(placed.width);
  const drawn = useDrawn(placed, zoom);
  const nodes = new Map(told.nodes.map((/** @type {any} */ one) => [one.id, one]));
  return html`
    <div class="graph">
      <div class="graph-box" tabindex="0" role="region" aria-label="Graph of the job">
        <div style=${{ width: `${placed.width * zoom}px`, height: `${placed.height * zoom}px` }}>
          <div class="graph-plane" style=${{ width: `${placed.width}px`, height: `${placed.height}px`, transform: `scale(${zoom})` }}>
            <${Edges} placed=${placed} edges=${told.edges} isDrawn=${(/** @type {string} */ id) => drawn.has(id)} />
            ${placed.nodes.filter(({ id }) => drawn.has(id)).map(({ id, x, y }) => html`
              <${Node} key=${id} job=${job} node=${nodes.get(id)} x=${x} y=${y} culprit=${culprit} />
            `)}
          </div>
        </div>
      </div>
      <div class="graph-zoom row">
        <button aria-label="Smaller" onClick=${() => setZoom(zoom / ZOOMS.step)}>\u2212</button>
        <button onClick=${fit}>Fit</button>
        ${opened && html`<a href=${to(["jobs", job])}>Fold all</a>`}
        <button aria-label="Larger" onClick=${() => setZoom(zoom * ZOOMS.step)}>+</button>
      </div>
    </div>
  `;
}

/**
 * The ids of the vertices that are drawn by now: of a large graph at first those that one sees, and the others in pieces after that.
 * @param {ReturnType<typeof place>} placed
 * @param {number} zoom
 */
function useDrawn(placed, zoom) {
  const [most, setMost] = useState(PIECE);
  const inOrder = useMemo(() => {
    const isSeen = (/** @type {{ x: number, y: number }} */ { x, y }) => x * zoom < innerWidth && y * zoom < innerHeight;
    const seen = placed.nodes.filter(isSeen);
    return [...seen, ...placed.nodes.filter((one) => !isSeen(one))].map((one) => one.id);
  }, [placed]);
  useEffect(() => {
    if (most >= inOrder.length) return;
    const timer = setTimeout(() => setMost(most + PIECE));
    return () => clearTimeout(timer);
  }, [most, inOrder]);
  return new Set(inOrder.slice(0, most));
}

/**
 * All of the graph is seen, as long as its texts can be read, until somebody chooses another size. The width of the window is asked for
 * before the graph is in the page: a browser that is asked later lays all of it out at once.
 */
function useZoom(/** @type {number} */ width) {
  const [zoom, set] = useState(() => fitting(width));
  const fitted = useRef(/** @type {number | null} */ (width));
  const fit = () => {
    fitted.current = width;
    set(fitting(width));
  };
  const setZoom = (/** @type {number} */ wanted) => {
    fitted.current = null;
    set(Math.min(ZOOMS.most, Math.max(ZOOMS.least, wanted)));
  };
  useLayoutEffect(() => {
    const resized = () => void (fitted.current === null || fit());
    if (fitted.current !== width) fit();
    addEventListener("resize", resized);
    return () => removeEventListener("resize", resized);
  }, [width]);
  return { zoom, setZoom, fit };
}

function fitting(/** @type {number} */ width) {
  const room = Math.min(document.documentElement.clientWidth, PAGE.most) - PAGE.around;
  return Math.min(ZOOMS.most, Math.max(1, room / WIDE_PX), Math.max(0.6, room / width));
}

/** Where each vertex and each edge is drawn. */
function place(/** @type {any} */ told) {
  const graph = new Graph({ multigraph: true }).setGraph({ rankdir: "LR", ranker: "tight-tree", ...GAPS }).setDefaultEdgeLabel(() => ({}));
  for (const one of told.nodes) graph.setNode(one.id, { ...NODE });
  for (const one of told.edges) graph.setEdge(one.source, one.target, {}, String(one.input));
  layout(graph);
  const { width, height } = graph.graph();
  return {
    width: Math.ceil(width),
    height: Math.ceil(height),
    nodes: /** @type {{ id: string, x: number, y: number }[]} */ (told.nodes).map(({ id }) => {
      const { x, y } = graph.node(id);
      return { id, x: x - NODE.width / 2, y: y - NODE.height / 2 };
    }),
    lines: told.edges.map((/** @type {any} */ one) => graph.edge(one.source, one.target, String(one.input)).points),
  };
}

/** Those whose vertices are drawn. */
function Edges({ placed, edges, isDrawn }) {
  return html`
    <svg class="graph-edges" width=${placed.width} height=${placed.height} aria-hidden="true">
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0 8 4 0 8z" />
        </marker>
      </defs>
      ${edges.map((/** @type {any} */ edge, /** @type {number} */ at) => isDrawn(edge.source) && isDrawn(edge.target) && html`<${Edge} key=${`${edge.source}${edge.target}${edge.input}`} edge=${edge} points=${placed.lines[at]} />`)}
    </svg>
  `;
}

function Edge({ edge, points }) {
  const [first, ...others] = points;
  const middle = points[Math.floor(points.length / 2)];
  const path = `M${first.x} ${first.y}${others.map((one) => `L${one.x} ${one.y}`).join("")}`;
  const title = edgeTitle(edge);
  return html`
    <g class="graph-edge">
      <title>${title}</title>
      <path d=${path} marker-end="url(#arrow)" />
      <text x=${middle.x} y=${middle.y - 7}>${edge.partitioner}</text>
      <text x=${middle.x} y=${middle.y + 15} class="quiet">${edge.bytes === null ? "" : byteRate(edge.bytes)}</text>
    </g>
  `;
}

function edgeTitle(/** @type {any} */ edge) {
  const used = edge["pool-usage"] === null ? "" : `\nbuffers in use at the receiver: ${Math.round(edge["pool-usage"] * 100)} %`;
  const why = Object.entries(edge.why).map(([name, text]) => `\n${name}: ${UNKNOWN}, ${text}`);
  const flow = edge.records === null ? "" : `\n${rate(edge.records)} records, ${byteRate(edge.bytes)}`;
  return `${edge.partitioner}, ${edge.exchange}${flow}${used}${why.join("")}`;
}

function Node({ job, node, x, y, culprit }) {
  const isCulprit = node.id === culprit || node.members?.includes(culprit);
  const blocked = node["back-pressured"]?.max ?? 0;
  const isOver = ["FINISHED", "CANCELED"].includes(node.state);
  const hasEnded = isOver || node.state === "FAILED";
  const name = classes("graph-node", blocked > BLOCKED && "blocked", isCulprit && "culprit", isOver && "over", node.state === "FAILED" && "failed");
  const place = { left: `${x}px`, top: `${y}px`, width: `${NODE.width}px`, height: `${NODE.height}px`, "--share": node.busy?.max ?? 0 };
  return html`
    <a class=${name} style=${place} href=${addressOf(job, node)} title=${node.name}>
      ${isCulprit && html`<em>limits the job</em>`}
      <b class="graph-name"><${Name} name=${node.name} /></b>
      <span class="graph-line"><span>\u00d7 ${count(node.parallelism)}</span><${NodeState} node=${node} /></span>
      ${hasEnded && node.total ? html`<${Done} total=${node.total} node=${node} />` : html`<${Doing} node=${node} />`}
      <span class="graph-line quiet">
        ${hasEnded ? html`<span></span>` : html`<${Lag} node=${node} />`}<span title=${node.why["state-bytes"] ?? "state in the last checkpoint"}>state ${bytes(node["state-bytes"])}</span>
      </span>
    </a>
  `;
}

/** What a vertex does now. Records are those of the last second, shares those of the last minute. */
function Doing({ node }) {
  return html`
    <span class="graph-line" title="records per second, in and out, in the last second">
      <span>${flow(node, "records-in")} \u2192 ${flow(node, "records-out")}</span>
    </span>
    <span class="graph-shares">
      <span>busy</span><${NodeShare} node=${node} name="busy" kind="busy" />
      <span>blocked</span><${NodeShare} node=${node} name="back-pressured" kind="blocked" />
    </span>
  `;
}

/** What a vertex that has ended has done in all. */
function Done({ total, node }) {
  const records = (/** @type {string} */ name, /** @type {string} */ none) => (total[name] ? count(total[name]) : none);
  return html`
    <span class="graph-line" title=${`records in all: ${exact(total["records-in"])} in, ${exact(total["records-out"])} out`}>
      <span>${records("records-in", node.source ? "source" : "0")} \u2192 ${records("records-out", node.sink ? "sink" : "0")}</span><span class="quiet">records</span>
    </span>
    <span class="graph-line quiet" title="bytes in all, in and out">
      <span>${bytes(total["bytes-in"])} \u2192 ${bytes(total["bytes-out"])}</span>
    </span>
  `;
}

/** Of a vertex its page; of a fold the graph with its vertices. */
function addressOf(/** @type {string} */ job, /** @type {any} */ node) {
  return node.members ? to(["jobs", job], { fold: node.rank }) : to(["jobs", job, "vertices", node.id]);
}

/** A source has no input, and a sink gives nothing to others. */
function flow(/** @type {any} */ node, /** @type {string} */ name) {
  if (name === "records-in" && node.source && !node[name]) return "source";
  if (name === "records-out" && node.sink && !node[name]) return "sink";
  return rate(node[name]);
}

/** The highest of the subtasks, and the median next to it: the one alone hides skew, the other one hides who is to blame. */
function NodeShare({ node, name, kind }) {
  const told = node[name];
  return html`<${Share} kind=${kind} value=${told?.max} median=${node.parallelism > 1 ? told?.median : undefined} title=${shareTitle(node, name)} />`;
}

function shareTitle(/** @type {any} */ node, /** @type {string} */ name) {
  const told = node[name];
  if (!told) return node.why[name];
  const percent = (/** @type {number} */ value) => `${Math.round(value * 100)} %`;
  return `${name}: most ${percent(told.max)}, median ${percent(told.median)}, least ${percent(told.min)} of the subtasks' time`;
}

function NodeState({ node }) {
  const states = Object.entries(node.states);
  if (states.length < 2) return html`<${State} state=${node.state} />`;
  return html`<span>${states.map(([state, number]) => `${number} ${state.toLowerCase()}`).join(", ")}</span>`;
}

function Lag({ node }) {
  const lag = node["watermark-lag"];
  const title = lag === null ? node.why["watermark-lag"] : "how far the watermark is behind the clock";
  const isLate = lag !== null && lag > LATE_MS;
  return html`<span class=${classes(isLate && "graph-late")} title=${title}>\u25f7 ${duration(lag)}</span>`;
}
