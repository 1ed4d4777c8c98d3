// @ts-check
import { to } from "../base/address.js";
import { html } from "../base/html.js";

export function Page({ path = "" }) {
  return html`<p class="banner bad">
    There is no page <code>${path}</code>. <a href=${to([])}>All jobs of this driver</a>
  </p>`;
}
