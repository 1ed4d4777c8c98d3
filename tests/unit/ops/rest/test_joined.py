"""Modules and styles as one file each. That the whole dashboard works so, every test in a browser shows."""

import subprocess

import pytest
from playwright._impl._driver import compute_driver_executable

from penstock.ops.rest.pages import CannotJoinError, joined_modules, joined_styles

MODULES = {
    "app/main.js": """\
// @ts-check
/** What it does.
 * import { a } from "./nowhere.js";
 */
import twice from "./twice.js";
import { one, two as zwei } from "./base/numbers.js";
import {
  Shape,
  later,
} from "./base/more.js";

console.log(twice(one), zwei, new Shape().corners, later);
const page = () => import("./page.js");
page().then((told) => console.log(told.Page()));
""",
    "app/twice.js": "export default function(value){return 2*value}\n// Source map\n",
    "app/base/numbers.js": "const a=1;var b=2;export{a as one,b as two};",
    "app/base/more.js": """\
export { one as first } from "./numbers.js";
export class Shape {
  get corners() {
    return `export const ${LATER}`;
  }
}
export async function later() {}
export const LATER = 3;
""",
    "app/page.js": """\
import { first } from "./base/more.js";
import { count } from "./count.js";
export function Page() {
  return [first, count];
}
""",
    "app/count.js": 'console.log("counted");\nexport const count = 7;\n',
}


def run(modules, path):
    path.write_text(joined_modules(modules, "app/main.js"), "utf-8")
    node, _ = compute_driver_executable()  # Playwright brings Node.js along.
    told = subprocess.run([node, str(path)], check=False, capture_output=True, text=True)
    assert told.stderr == ""
    return told.stdout.splitlines()


def test_it_does_what_the_modules_do(tmp_path):
    assert run(MODULES, tmp_path / "app.mjs") == [
        "2 2 export const 3 [AsyncFunction: later]",
        "counted",
        "[ 1, 7 ]",
    ]


def test_each_module_runs_once_and_only_when_it_is_needed(tmp_path):
    main = """\
import { count } from "./count.js";
import { Page } from "./page.js";
console.log(count, Page());
const never = () => import("./never.js");
"""
    modules = MODULES | {"app/main.js": main, "app/never.js": 'console.log("never");\n'}
    assert run(modules, tmp_path / "app.mjs") == ["counted", "7 [ 1, 7 ]"]


def test_lines_stay_lines():
    joined = joined_modules(MODULES, "app/main.js").splitlines()
    begin = joined.index("// app/base/more.js") + 1
    written = MODULES["app/base/more.js"].splitlines()
    assert joined[begin + 2] == written[2] == "  get corners() {"
    assert joined[begin + 7] == written[7].removeprefix("export ") == "const LATER = 3;"


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"app/count.js": 'import { Page } from "./page.js";\n'}, "import each other: app/main.js"),
        ({"app/count.js": 'import { no } from "./no.js";\n'}, "app/count.js imports app/no.js"),
        ({"app/count.js": 'import * as all from "./twice.js";\n'}, "app/count.js has a form"),
        ({"app/count.js": 'import "./twice.js";\n'}, "app/count.js has a form"),
        ({"app/count.js": "export let count = 7;\n"}, "app/count.js has a form"),
        ({"app/count.js": 'export * from "./twice.js";\n'}, "app/count.js has a form"),
        ({"app/count.js": 'const a = await import("./twice.js");\n'}, "app/count.js has a form"),
    ],
)
def test_what_it_does_not_know_is_an_error(more, text):
    main = 'import { Page } from "./page.js";\n'
    with pytest.raises(CannotJoinError, match=text):
        joined_modules(MODULES | {"app/main.js": main} | more, "app/main.js")


def test_styles_keep_their_order():
    styles = {"b.css": "b {}\n", "a.css": "a {}"}
    assert joined_styles(styles, ["b.css", "a.css"]) == "/* b.css */\nb {}\n/* a.css */\na {}\n"
