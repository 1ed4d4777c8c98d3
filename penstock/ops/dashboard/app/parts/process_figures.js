// @ts-check
/** Figures of a process: how they are told, and why one of them is not known. */

import { bytes, exact, share } from "../base/format.js";
import { html } from "../base/html.js";
import { Share } from "./common.js";

/** Over what time they are. */
export const PROCESS_OVER = "As the process last reported it: every 10 s, unless metrics.fetcher.update-interval says otherwise.";
const NOT_REPORTED = "The process has not reported it yet, or its system does not tell it.";

/** A figure of the process as `/taskmanagers/health` names it; unknown ones say why. */
export function Figure({ value, kind }) {
  if (value === null || value === undefined) return html`<span class="quiet" title=${NOT_REPORTED}>n/a</span>`;
  if (kind === "bytes") return html`<span title="${exact(value)} B">${bytes(value)}</span>`;
  if (kind === "share") return share(value);
  return exact(value);
}

/** The share of all cores that a process uses. */
export function Cpu({ one }) {
  return html`<${Share} value=${one.cpu} kind="busy" title=${one.cpu === null ? NOT_REPORTED : "share of all cores of its machine"} />`;
}

/** The memory of a process, as a part of what it is meant to take at most. */
export function Memory({ one }) {
  if (one.resident === null) return html`<${Figure} value=${null} kind="bytes" />`;
  const most = one["memory-max"];
  return html`<span title="${exact(one.resident)} B${most ? ` of ${bytes(most)}` : ""}">${bytes(one.resident)}${most ? html` <span class="quiet">of ${bytes(most)}</span>` : ""}</span>`;
}

/** Buffers of the network: those that nobody uses, of all. */
export function Buffers({ one }) {
  if (one["buffers-total"] === null) return html`<${Figure} value=${null} kind="number" />`;
  return html`<span>${exact(one["buffers-free"])} <span class="quiet">of ${exact(one["buffers-total"])}</span></span>`;
}
