// @ts-check
/**
 * Lanes over time: each is a row of states. Arrow keys go from state to state; what the chosen one is stands below the lanes in words.
 *
 * Spans too narrow to be seen are drawn together, and say how many they are. Dragging zooms.
 */

import { duration, time, utc } from "../../base/format.js";
import { classes, html, useLayoutEffect, useRef, useState } from "../../base/html.js";
import { zoomTo } from "./chart.js";
import { kindOf } from "../common.js";
import { MARKS } from "./plot.js";

/**
 * @typedef {{ state: string, from: number, to: number | null, cause?: string | null }} Span times in ms; `to` null: it lasts
 * @typedef {{ key: string, label: any, spans: Span[], name: string, isInner?: boolean }} Lane `name`: for those who do not see the label
 * @typedef {{ from: number, to: number, spans: Span[] }} Drawn
 * @typedef {{ lane: number, place: number }} Chosen
 */

const NARROWEST = 1 / 300;

/** @param {Lane} lane @param {number} from @param {number} to @param {number} now @returns {Drawn[]} what is drawn of a lane */
export function drawn(lane, from, to, now) {
  const narrow = (to - from) * NARROWEST;
  /** @type {Drawn[]} */
  const found = [];
  for (const span of lane.spans) {
    const [begin, end] = [Math.max(span.from, from), Math.min(span.to ?? now, to)];
    if (end < begin || span.from > to || (span.to ?? now) < from) continue;
    const last = found[found.length - 1];
    const isNarrow = end - begin < narrow;
    if (last && isNarrow && last.to - last.from < narrow) {
      last.to = end;
      last.spans.push(span);
    } else {
      found.push({ from: begin, to: end, spans: [span] });
    }
  }
  return found;
}

/**
 * @param {{ lanes: Lane[], span: [from: number, to: number], now: number, marks?: import("./plot.js").Mark[], title: string,
 *           said?: (lane: Lane, span: Span) => any }} props `span` in ms; `said`: more about a state, for example a link
 */
export function Lanes({ lanes, span, now, marks = [], title, said = () => null }) {
  const [from, to] = span;
  const [chosen, setChosen] = useState(/** @type {Chosen} */ ({ lane: 0, place: -1 }));
  const [isSaid, setSaid] = useState(false);
  const rows = lanes.map((lane) => ({ lane, parts: drawn(lane, from, to, now) }));
  const choose = (/** @type {Chosen} */ next) => (setChosen(next), setSaid(true));
  const here = rows[chosen.lane]?.parts[placeIn(rows[chosen.lane]?.parts ?? [], chosen.place)];
  return html`
    <div class="lanes" role="group" aria-label=${title}>
      <div class="lane-axis"><span></span><${Axis} from=${from} to=${to} marks=${marks} /></div>
      <div class="lane-rows" onKeyDown=${(/** @type {KeyboardEvent} */ event) => arrow(event, rows, chosen, choose)}>
        ${rows.map(({ lane, parts }, number) => html`<${Row} key=${lane.key} lane=${lane} parts=${parts} number=${number} chosen=${chosen} choose=${choose} span=${span} />`)}
        <${Lines} from=${from} to=${to} marks=${marks} />
      </div>
    </div>
    <p class="lane-said" role="status">
      ${isSaid && here ? html`<${Said} lane=${rows[chosen.lane].lane} part=${here} now=${now} said=${said} />` : html`<span class="quiet">Point at a state, or go there with the arrow keys. Drag to zoom.</span>`}
    </p>
  `;
}

/** The last state is where the keyboard begins. */
function placeIn(/** @type {Drawn[]} */ parts, /** @type {number} */ place) {
  return place < 0 || place >= parts.length ? parts.length - 1 : place;
}

function Row({ lane, parts, number, chosen, choose, span }) {
  const [from, to] = span;
  const wide = to - from;
  const own = chosen.lane === number ? placeIn(parts, chosen.place) : -1;
  return html`
    <div class=${classes("lane", lane.isInner && "inner")}>
      <span class="lane-name" title=${lane.name}>${lane.label}</span>
      <div class="lane-track" role="list" aria-label=${lane.name} onPointerDown=${(/** @type {PointerEvent} */ event) => drag(event, from, to)}>
        ${parts.map((/** @type {Drawn} */ part, /** @type {number} */ place) => {
          const state = worst(part.spans);
          const kind = part.spans.length > 1 ? "many" : kindOf(state);
          return html`
            <span
              key=${place} role="listitem" class=${classes("lane-part", kind, state)} data-at=${`${number}-${place}`} tabindex=${place === own ? 0 : -1}
              style=${{ left: `min(${(100 * (part.from - from)) / wide}%, 100% - 3px)`, width: `${(100 * Math.max(0, part.to - part.from)) / wide}%` }}
              aria-label=${named(part)} onFocus=${() => choose({ lane: number, place })} onMouseEnter=${() => choose({ lane: number, place })}
            ><span aria-hidden="true">${part.spans.length > 1 ? part.spans.length : state}</span></span>
          `;
        })}
      </div>
    </div>
  `;
}

/** Of several states, the one that must not be hidden. */
function worst(/** @type {Span[]} */ spans) {
  return (spans.find((one) => kindOf(one.state) === "bad") ?? spans[spans.length - 1]).state;
}

function named(/** @type {Drawn} */ part) {
  const [one] = part.spans;
  if (part.spans.length > 1) return `${part.spans.length} states within ${duration(part.to - part.from)}, from ${time(part.from)}`;
  return `${one.state} from ${time(one.from)}${one.to === null ? "" : ` for ${duration(one.to - one.from)}`}${one.cause ? `: ${one.cause}` : ""}`;
}

/** The chosen state in words. */
function Said({ lane, part, now, said }) {
  const listed = part.spans.slice(-4);
  return html`
    <b>${lane.name}</b>${" "}
    ${part.spans.length > listed.length && html`<span class="quiet">${part.spans.length} states within ${duration(part.to - part.from)}; the last ${listed.length}:</span>`}
    ${listed.map(
      (/** @type {Span} */ one) => html`
        <span class="said-state">
          ${one.state} <span title=${utc(one.from)}>from ${time(one.from)}</span>, ${one.to === null ? `for ${duration(now - one.from)} until now` : `for ${duration(one.to - one.from)}`}${one.cause ? html`: <span class="bad-text">${one.cause}</span>` : ""} ${said(lane, one)}
        </span>
      `,
    )}
  `;
}

/** @param {KeyboardEvent} event @param {{ lane: Lane, parts: Drawn[] }[]} rows @param {Chosen} chosen @param {(next: Chosen) => void} choose */
function arrow(event, rows, chosen, choose) {
  const steps = /** @type {Record<string, [number, number]>} */ ({ ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] });
  const step = steps[event.key];
  const inside = /** @type {HTMLElement} */ (event.currentTarget);
  if (!step || !(/** @type {HTMLElement} */ (event.target).dataset.at)) return;
  event.preventDefault();
  let lane = chosen.lane + step[0];
  while (rows[lane] && rows[lane].parts.length === 0) lane += step[0] || 1;
  if (!rows[lane]) return;
  const { parts } = rows[lane];
  const here = placeIn(rows[chosen.lane].parts, chosen.place);
  const at = rows[chosen.lane].parts[here];
  const place = step[0] ? Math.max(0, parts.findLastIndex((/** @type {Drawn} */ one) => one.from <= at.from)) : Math.min(parts.length - 1, Math.max(0, here + step[1]));
  choose({ lane, place });
  /** @type {HTMLElement | null} */ (inside.querySelector(`[data-at="${lane}-${place}"]`))?.focus();
}

/** Round times for the axis, in ms. */
const TICKS_MS = [1, 5, 10, 50, 100, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000, 604_800_000];

/** As wide as a letter of the axis at most. */
const LETTER_PX = 8;

function Axis({ from, to, marks }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [wide, setWide] = useState(800);
  useLayoutEffect(() => {
    const watched = /** @type {HTMLDivElement} */ (place.current);
    const sized = new ResizeObserver(() => setWide(watched.clientWidth || 800));
    sized.observe(watched);
    return () => sized.disconnect();
  }, []);
  const step = TICKS_MS.find((one) => (to - from) / one <= wide / 90) ?? (to - from) / 4;
  const zone = new Date(to).getTimezoneOffset() * 60_000;
  const first = Math.ceil((from - zone) / step) * step + zone;
  const ticks = Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, number) => first + number * step);
  // A time that would be cut at the end of the axis is left out.
  const hasRoom = (/** @type {number} */ ms) => ((to - ms) / (to - from)) * wide > clock(ms, step).length * LETTER_PX;
  const at = (/** @type {number} */ ms) => ({ left: `${(100 * (ms - from)) / (to - from)}%` });
  return html`
    <div ref=${place} class="ticks" aria-hidden="true">
      ${ticks.filter(hasRoom).map((ms) => html`<span class="tick" style=${at(ms)}>${clock(ms, step)}</span>`)}
      ${apart(marks, from, to, 12 / wide).map((one) => html`<span class="tick-mark" style=${{ ...at(one.at), color: MARKS[one.kind].colour }} title=${`${time(one.at)} ${one.text}`}>${MARKS[one.kind].sign}</span>`)}
    </div>
  `;
}

function clock(/** @type {number} */ ms, /** @type {number} */ step) {
  const text = time(ms).slice(-8);
  if (step < 1000) return `${text}.${String(Math.round(ms % 1000)).padStart(3, "0")}`;
  return step < 60_000 ? text : step < 86_400_000 ? text.slice(0, 5) : time(ms).slice(0, 10);
}

/** Signs that would cover each other are left out; their lines stay. */
function apart(/** @type {import("./plot.js").Mark[]} */ marks, /** @type {number} */ from, /** @type {number} */ to, /** @type {number} */ gap) {
  let free = -Infinity;
  return marks.filter((one) => {
    const place = (one.at - from) / (to - from);
    if (place < 0 || place > 1 || place < free) return false;
    free = place + gap;
    return true;
  });
}

/** The marks through all lanes. */
function Lines({ from, to, marks }) {
  const within = apart(marks, from, to, 1 / 2000);
  return html`<div class="lane-lines" aria-hidden="true"><div>${within.map((one) => html`<i style=${{ left: `${(100 * (one.at - from)) / (to - from)}%`, borderColor: MARKS[one.kind].colour }}></i>`)}</div></div>`;
}

/** Zoom to what the pointer passes over. */
function drag(/** @type {PointerEvent} */ event, /** @type {number} */ from, /** @type {number} */ to) {
  if (event.button !== 0) return;
  const track = /** @type {HTMLElement} */ (event.currentTarget);
  const box = track.getBoundingClientRect();
  const share = (/** @type {number} */ x) => Math.min(1, Math.max(0, (x - box.left) / box.width));
  const begin = share(event.clientX);
  const shade = document.createElement("i");
  shade.className = "lane-shade";
  const moved = (/** @type {PointerEvent} */ now) => {
    const end = share(now.clientX);
    if (Math.abs(end - begin) * box.width < 4) return;
    if (!shade.isConnected) track.append(shade);
    shade.style.left = `${100 * Math.min(begin, end)}%`;
    shade.style.width = `${100 * Math.abs(end - begin)}%`;
  };
  const done = (/** @type {PointerEvent} */ now) => {
    removeEventListener("pointermove", moved);
    const isZoomed = shade.isConnected;
    shade.remove();
    if (!isZoomed) return;
    const ends = [begin, share(now.clientX)].sort((left, right) => left - right);
    zoomTo((from + ends[0] * (to - from)) / 1000, (from + ends[1] * (to - from)) / 1000);
  };
  addEventListener("pointermove", moved);
  addEventListener("pointerup", done, { once: true });
}
