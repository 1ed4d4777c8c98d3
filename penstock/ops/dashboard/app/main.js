// @ts-check
import { parsed } from "./base/address.js";
import { html, render } from "./base/html.js";
import { beArchive } from "./base/live.js";
import { pageOf } from "./pages/index.js";
import { Shell } from "./shell.js";

const root = document.documentElement;
const theme = localStorage.getItem("penstock.theme");
if (theme) root.dataset.theme = theme;

// The server says in the page what it is, so that nothing has to be asked first.
const isArchive = root.dataset.server === "archive";
if (isArchive) beArchive();

const place = /** @type {Element} */ (document.getElementById("app"));
// The frame and its page come together: so all answers that they need are asked for in one request.
pageOf(parsed(location.hash)).load().then(() => {
  place.replaceChildren();
  render(html`<${Shell} isArchive=${isArchive} />`, place);
});
