// @ts-check
/** Switches that a demonstration offers, above all pages. Other programs have none. */

import { html, useState } from "../base/html.js";
import { useLive } from "../base/live.js";
import { ask, ServerError } from "../base/server.js";

export function Switches({ config }) {
  const told = useLive(config.features?.["web-history"] ? null : "/switches");
  const offered = told?.body?.switches ?? [];
  if (offered.length === 0) return null;
  return html`
    <section class="switches" aria-label="Demonstration">
      <h2>Make it ill</h2>
      ${offered.map((one) => html`<${Switch} key=${one.name} told=${one} />`)}
    </section>
  `;
}

function Switch({ told }) {
  const [wanted, setWanted] = useState(/** @type {boolean | null} */ (null));
  const [error, setError] = useState("");
  const isOn = wanted ?? told.on;
  const turn = async () => {
    setWanted(!isOn);
    try {
      await ask(`/switches/${told.name}`, { method: "PUT", body: { on: !isOn } });
      setError("");
    } catch (refused) {
      setWanted(null);
      setError(refused instanceof ServerError ? refused.message : String(refused));
    }
  };
  return html`
    <label class="switch">
      <input type="checkbox" role="switch" checked=${isOn} onChange=${turn} />
      <span><b>${told.name}</b> <span class="quiet">${told.text}</span> ${error && html`<span class="bad-text" role="alert">${error}</span>`}</span>
    </label>
  `;
}
