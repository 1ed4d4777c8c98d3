// @ts-check
/** The log files of a process, asked for once: who looks at one of them sees it grow there. */

import { to } from "../../base/address.js";
import { bytes } from "../../base/format.js";
import { html, useEffect, useState } from "../../base/html.js";
import { ask, reasonOf } from "../../base/server.js";
import { Card, Moment } from "../common.js";
import { Table } from "../table.js";

/** @param {{ path: string, page: string[], noun: string }} props `path`: of the process on the server; `page`: its address */
export function Files({ path, page, noun }) {
  const [files, setFiles] = useState(/** @type {{ name: string, size: number, mtime: number }[] | null} */ (null));
  const [error, setError] = useState("");
  const look = () =>
    ask(`${path}/logs`).then(
      (told) => {
        setFiles(told.logs);
        setError("");
      },
      (failure) => setError(reasonOf(failure)),
    );
  useEffect(() => void look(), [path]);
  const columns = [
    { title: "File", isName: true, value: (one) => one.name, cell: (one) => html`<a href=${to([...page, "log"], { file: one.name })}>${one.name}</a>` },
    { title: "Size", isNumber: true, value: (one) => one.size, cell: (one) => bytes(one.size) },
    { title: "Last written", value: (one) => one.mtime, cell: (one) => html`<${Moment} at=${one.mtime} />` },
  ];
  return html`
    <${Card} title="Log files" more=${html`<button onClick=${look}>Look again</button>`}>
      ${error && html`<p class="bad-text" role="alert">${error}</p>`}
      ${!error && files === null && html`<p class="quiet" aria-busy="true">Asking the ${noun} for its files\u2026</p>`}
      ${files !== null &&
      html`<${Table} caption="Log files" columns=${columns} rows=${files} first="Last written" keyOf=${(/** @type {any} */ one) => one.name} empty="This ${noun} writes no log files." />`}
    <//>
  `;
}
