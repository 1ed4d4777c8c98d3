// @ts-check
/** Many lines of text, of which only those are drawn that one sees. All lines are equally high. */

import { classes, html, useEffect, useLayoutEffect, useRef, useState } from "../../base/html.js";

export const LINE_PX = 18;
const BEYOND = 30;

const SIGNS = /** @type {Record<string, string>} */ ({ ERROR: "\u2715", CRITICAL: "\u2715", WARNING: "\u26a0" });

/**
 * `chosen`: the key of the line that is shown and marked. `isAtEnd`: keep the last line in sight. What one reads stays where it is when
 * older lines come.
 * @param {{ lines: import("./log_file.js").Line[], chosen: number | null, query: string, isAtEnd: boolean, label: string,
 *           onScroll: (isAtEnd: boolean) => void }} props
 */
export function LogView({ lines, chosen, query, isAtEnd, label, onScroll }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [top, setTop] = useState(0);
  const height = useHeight(box);
  const former = useRef(lines[0]?.key ?? 0);
  useLayoutEffect(() => {
    if (!box.current) return;
    const added = lines.findIndex((one) => one.key >= former.current);
    if (isAtEnd) box.current.scrollTop = box.current.scrollHeight;
    else if (added > 0) box.current.scrollTop += added * LINE_PX;
    former.current = lines[0]?.key ?? 0;
  }, [lines, isAtEnd, height]);
  useLayoutEffect(() => {
    const place = lines.findIndex((one) => one.key === chosen);
    if (box.current && place >= 0) box.current.scrollTop = Math.max(0, place * LINE_PX - height / 2);
  }, [chosen]);
  const scrolled = (/** @type {any} */ event) => {
    const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
    setTop(scrollTop);
    onScroll(scrollTop + clientHeight > scrollHeight - 2 * LINE_PX);
  };
  const first = Math.max(0, Math.floor(top / LINE_PX) - BEYOND);
  const shown = lines.slice(first, first + Math.ceil(height / LINE_PX) + 2 * BEYOND);
  return html`
    <div class="log" ref=${box} onScroll=${scrolled} tabindex="0" role="region" aria-label=${label}>
      <div class="log-lines" style=${{ height: `${lines.length * LINE_PX}px` }}>
        <div style=${{ transform: `translateY(${first * LINE_PX}px)` }}>
          ${shown.map((line) => html`<${Line} key=${line.key} line=${line} query=${query} isChosen=${line.key === chosen} />`)}
        </div>
      </div>
    </div>
  `;
}

function useHeight(/** @type {{ current: HTMLElement | null }} */ box) {
  const [height, setHeight] = useState(600);
  useEffect(() => {
    const observed = new ResizeObserver(([one]) => setHeight(one.contentRect.height));
    if (box.current) observed.observe(box.current);
    return () => observed.disconnect();
  }, []);
  return height;
}

function Line({ line, query, isChosen }) {
  const sign = line.isFirst ? (SIGNS[line.level] ?? "") : "";
  return html`
    <div class=${classes("log-line", line.level.toLowerCase(), isChosen && "chosen")} aria-current=${isChosen ? "true" : null}>
      <span class="log-sign" aria-hidden="true">${sign}</span>${marked(line.text, query)}
    </div>
  `;
}

/** The text, with what was looked for marked in it. */
function marked(/** @type {string} */ text, /** @type {string} */ query) {
  if (!query) return text;
  const found = [];
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, from)) {
    found.push(text.slice(from, at), html`<mark>${text.slice(at, at + query.length)}</mark>`);
    from = at + query.length;
  }
  return [...found, text.slice(from)];
}
