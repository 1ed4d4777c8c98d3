// @ts-check
/** Components are functions that return html`...`. Preact renders them. Everything of Preact that the dashboard uses comes from here. */

import htm from "../../vendor/htm.js";
import { h } from "../../vendor/preact.js";

export const html = htm.bind(h);
export { Fragment, render } from "../../vendor/preact.js";
export {
  useCallback,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../../vendor/hooks.js";

/**
 * The names of classes that apply.
 * @param {...(string | false | null | undefined)} names
 */
export function classes(...names) {
  return names.filter(Boolean).join(" ");
}
