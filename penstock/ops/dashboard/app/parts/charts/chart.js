// @ts-check
/**
 * Time charts: lines or a stack on one axis with its unit, marks, and the numbers as text next to them.
 *
 * Charts that share a crosshair show the same moment. Dragging zooms all charts of the page, for the range stands in the address.
 */

import { change } from "../../base/address.js";
import { time, UNKNOWN, utc } from "../../base/format.js";
import { classes, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../base/html.js";
import uPlot from "../../../vendor/uplot.js";
import { Name } from "../chain.js";
import { Crosshair, nearest, useMoment } from "./crosshair.js";
import { usualTop } from "./figures.js";
import { dataOf, MARKS, onTheme, optionsOf, styleOf, View } from "./plot.js";

/** One crosshair for the charts of a page. */
export function useCrosshair() {
  return useMemo(() => new Crosshair(), []);
}

/** Zoom all charts of the page to a part of their time; null: back to all of it. Seconds. */
export function zoomTo(/** @type {number | null} */ from, /** @type {number | null} */ to) {
  const rounded = (/** @type {number | null} */ at) => (at === null ? null : Math.round(at * 1000));
  change({ from: rounded(from), to: rounded(to) }, { isStep: true });
}

/**
 * @typedef {object} ChartProps
 * @property {string} title
 * @property {number[]} times seconds, ascending
 * @property {import("./plot.js").Series[]} series one value for each time; null: it was not known, so the line has a gap
 * @property {(value: number | null) => string} format a value with its unit
 * @property {[from: number, to: number]} span what of the time is shown, in seconds
 * @property {Crosshair} crosshair
 * @property {import("./plot.js").Mark[]} [marks] in the order of time
 * @property {boolean} [isStacked] the first line on top
 * @property {number | null} [top] the highest value that can be
 * @property {number[]} [steps] distances that lines of the grid may have
 * @property {number} [height] px
 * @property {boolean} [hasTimes] the clock stands below
 * @property {string} [nothing] what stands there while there is no value
 * @property {any} [more] what stands below the numbers
 */

/** @param {ChartProps} props */
export function Chart(props) {
  const { title, times, series, span, top = null, height = 128, hasTimes = true, isStacked = false } = props;
  const [isWhole, setWhole] = useState(false);
  const isTold = series.some((one) => one.values.some((value) => value !== null));
  const usual = useMemo(() => (top === null && !isStacked ? usualTop(times, series, span) : null), [times, series, span[0], span[1], top, isStacked]);
  return html`
    <figure class=${classes("chart", isStacked && "stacked")} aria-label=${title}>
      <${Plot} ...${props} top=${isWhole ? top : (usual?.top ?? top)} height=${height + (hasTimes ? 18 : 0)} hasTimes=${hasTimes} isStacked=${isStacked} isTold=${isTold} />
      <${Legend} ...${props} more=${html`${usual && html`<${Peak} peak=${usual.peak} format=${props.format} isWhole=${isWhole} choose=${setWhole} />`}${props.more}`} />
    </figure>
  `;
}

/** What is above the scale, which is that of the usual values: else a burst of a minute would make the rest of the line flat. */
function Peak({ peak, format, isWhole, choose }) {
  return html`
    <p class="quiet peak row">
      <span>highest ${format(peak.value)} at ${time(peak.at * 1000)}${isWhole ? "" : ", above the scale"}</span>
      <button aria-pressed=${isWhole} onClick=${() => choose(!isWhole)}>Whole scale</button>
    </p>
  `;
}

/** @param {ChartProps & { isTold: boolean }} props */
function Plot({ title, times, series, format, span, crosshair, marks = [], isStacked = false, top = null, steps, height = 128, hasTimes = true, nothing = "No figures in this range", isTold }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {uPlot | null} */ (null));
  const view = useMemo(() => new View(), []);
  Object.assign(view, { times, series, format, span, marks, top });
  const looks = series.map((one) => `${one.name}/${one.colour}/${one.dash}`).join("|");

  useLayoutEffect(() => {
    const inside = /** @type {HTMLDivElement} */ (place.current);
    const moved = (/** @type {number | null} */ at) => inside.matches(":hover") && crosshair.move(at, view);
    const make = (/** @type {number} */ width) => {
      plot.current = new uPlot(optionsOf(view, { width, height, isStacked, hasTimes, steps, moved, zoomed: zoomTo }), dataOf(view, isStacked), inside);
    };
    // The width is known when the browser has laid out the page. One that is asked before does it at once, and then again.
    const sized = new ResizeObserver(([{ contentRect }]) => {
      const width = Math.max(120, Math.floor(contentRect.width));
      if (plot.current === null) make(width);
      else plot.current.setSize({ width, height });
    });
    sized.observe(inside);
    const unthemed = onTheme(() => plot.current?.redraw());
    const unwatched = crosshair.watch(() => plot.current && showMoment(plot.current, crosshair, view));
    return () => {
      sized.disconnect();
      unthemed();
      unwatched();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [looks, height, hasTimes, isStacked, crosshair]);

  useLayoutEffect(() => plot.current?.setData(dataOf(view, isStacked)), [times, series, marks, span[0], span[1], top]);
  useEffect(() => slide(/** @type {HTMLDivElement} */ (place.current), view, crosshair));
  useEffect(() => crosshair.watch(() => slide(/** @type {HTMLDivElement} */ (place.current), view, crosshair)), [crosshair]);

  return html`
    <div
      ref=${place} class=${classes("plot", !isTold && "empty")} style=${{ minHeight: `${height}px` }} data-top=${top}
      tabindex="0" role="slider" aria-label=${`${title}: moment`} aria-orientation="horizontal"
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => step(event, view, crosshair)}
      onMouseLeave=${() => crosshair.move(null, view)}
      onBlur=${() => crosshair.by === view && crosshair.move(null, view)}
    >${!isTold && html`<p class="nothing">${nothing}</p>`}</div>
  `;
}

/** Show the moment that another chart, or a key, has chosen. */
function showMoment(/** @type {uPlot} */ plot, /** @type {Crosshair} */ crosshair, /** @type {View} */ view) {
  if (crosshair.by === view && plot.root.matches(":hover")) return;
  const left = crosshair.at === null ? -10 : plot.valToPos(crosshair.at, "x");
  plot.setCursor({ left, top: left < 0 ? -10 : 0 }, false);
}

/** What a screen reader says of the chosen moment. */
function slide(/** @type {HTMLDivElement | null} */ place, /** @type {View} */ view, /** @type {Crosshair} */ crosshair) {
  if (place === null) return;
  const [from, to] = view.span;
  const at = crosshair.at ?? view.times[view.times.length - 1] ?? to;
  const found = nearest(view.times, at);
  const said = view.series.map((one) => `${one.name} ${view.format(one.values[found] ?? null)}`);
  place.setAttribute("aria-valuemin", String(Math.round(from)));
  place.setAttribute("aria-valuemax", String(Math.round(to)));
  place.setAttribute("aria-valuenow", String(Math.round(Math.min(to, Math.max(from, at)))));
  place.setAttribute("aria-valuetext", `${time(at * 1000)}: ${said.join(", ") || "no figures"}`);
}

const STEPS = /** @type {Record<string, number>} */ ({ ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity });

/** Arrows choose the moment, Escape leaves it. */
function step(/** @type {KeyboardEvent} */ event, /** @type {View} */ view, /** @type {Crosshair} */ crosshair) {
  if (event.key === "Escape") crosshair.move(null, view);
  const by = STEPS[event.key];
  if (by === undefined || view.times.length === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const [from, to] = view.span;
  const shown = view.times.filter((at) => at >= from && at <= to);
  const now = nearest(shown, crosshair.at ?? shown[shown.length - 1]);
  const next = Math.min(shown.length - 1, Math.max(0, now + by));
  if (shown.length) crosshair.move(shown[next], view);
}

/** The numbers at the crosshair, or the newest ones, and the marks near it. @param {ChartProps} props */
function Legend({ title, times, series, format, span, crosshair, marks = [], more = null }) {
  const chosen = useMoment(crosshair);
  const shown = lastIn(times, span[1]);
  const place = chosen === null ? shown : nearest(times, chosen);
  const at = times[place];
  const near = chosen === null ? [] : marks.filter((one) => Math.abs(one.at / 1000 - chosen) <= (span[1] - span[0]) / 100);
  return html`
    <figcaption>
      <h3><${Name} name=${title} /></h3>
      <table class="legend">
        <caption class=${chosen === null ? "unseen" : ""}>${chosen === null ? `${title}, newest numbers` : html`<span title=${utc(at * 1000)}>at ${time(at * 1000)}</span>`}</caption>
        <tbody>${series.map((one, number) => html`<${Line} key=${one.name} series=${one} number=${number} value=${newest(one.values, place, chosen)} format=${format} />`)}</tbody>
      </table>
      ${near.slice(0, 3).map((one) => html`<p class="near"><${MarkSign} kind=${one.kind} /> ${time(one.at)} ${one.text}</p>`)}
      ${near.length > 3 && html`<p class="near">and ${near.length - 3} more marks</p>`}
      ${more}
    </figcaption>
  `;
}

function Line({ series, number, value, format }) {
  const { colour: css, dash } = styleOf(series, number);
  const key = series.hatch
    ? html`<i class="key hatched"></i>`
    : html`<svg class="key" width="20" height="8" aria-hidden="true"><line x1="0" y1="4" x2="20" y2="4" style=${{ stroke: css, strokeWidth: 2.5, strokeDasharray: dash.join(" ") }} /></svg>`;
  const told = format(value);
  return html`
    <tr>
      <th scope="row">${key}<span><${Name} name=${series.name} /></span></th>
      <td class="number" title=${told === UNKNOWN ? (series.why ?? "nothing is reported for this moment") : undefined}>${told}</td>
    </tr>
  `;
}

/** The sign of a mark with its name; the same one as in charts. */
export function MarkSign({ kind }) {
  const { sign, colour: css, name } = MARKS[/** @type {import("./plot.js").MarkKind} */ (kind)];
  return html`<span class="mark" style=${{ color: css }}><span aria-hidden="true">${sign}</span> ${name}</span>`;
}

/** The newest value; the rows of a moment that has just passed may not be there yet. */
function newest(/** @type {(number | null)[]} */ values, /** @type {number} */ place, /** @type {number | null} */ chosen) {
  if (chosen !== null) return values[place] ?? null;
  for (let one = place; one >= 0 && one > place - 5; one--) if (values[one] !== null) return values[one];
  return null;
}

function lastIn(/** @type {number[]} */ times, /** @type {number} */ to) {
  let place = times.length - 1;
  while (place > 0 && times[place] > to) place--;
  return place;
}
