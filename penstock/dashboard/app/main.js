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
void pageOf(parsed(location.hash)).load();

const place = /** @type {Element} */ (document.getElementById("app"));
place.replaceChildren();
render(html`<${Shell} isArchive=${isArchive} />`, place);
