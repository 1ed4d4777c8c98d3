// @ts-check
/**
 * Addresses of views: `#/jobs/<id>/checkpoints?pin=12`. What a view shows stands in its address, so that it can be sent to somebody.
 */

import { useEffect, useState } from "./html.js";

/** @typedef {{ path: string[], query: Record<string, string> }} Address */

/**
 * @param {string} hash
 * @returns {Address}
 */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/** A part that nobody has encoded so stays as it is: then there is no such page. */
function decoded(/** @type {string} */ part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * The address of a view. Parameters that are empty are left out.
 * @param {(string | number)[]} path
 * @param {Record<string, string | number | null | undefined>} [query]
 */
export function to(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const parameters = new URLSearchParams(given.map(([name, value]) => [name, String(value)]));
  const text = given.length ? `?${parameters}` : "";
  return `#/${path.map((part) => encodeURIComponent(part)).join("/")}${text}`;
}

/** The address that is shown, as a state of the component. */
export function useAddress() {
  const [address, setAddress] = useState(() => parsed(location.hash));
  useEffect(() => {
    const changed = () => setAddress(parsed(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return address;
}

/**
 * Show the same view with other parameters. `isStep`: the way back leads to the former ones.
 * @param {Record<string, string | number | null | undefined>} changes
 * @param {{ isStep?: boolean }} [how]
 */
export function change(changes, { isStep = false } = {}) {
  const { path, query } = parsed(location.hash);
  const next = to(path, { ...query, ...changes });
  if (isStep) {
    location.hash = next;
  } else {
    history.replaceState(null, "", next);
    dispatchEvent(new HashChangeEvent("hashchange"));
  }
}
