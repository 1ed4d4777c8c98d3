"""The dashboard's files: what a browser loads before it asks the REST API. They lie in `penstock/ops/dashboard`, and nothing builds them.

A wheel has them in one archive, `penstock/ops/dashboard.tar.xz` (`scripts/pack_dashboard.py`). The page names one file of all modules
and one of all styles, which are put together here: a request for each of them would take a browser longer than all the rest.
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import posixpath
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

# ---------------------------------------------------------------------- joined
# The dashboard's modules and styles as one file each, because a browser takes some milliseconds
# for each file that it asks for.
#
# Nothing is translated. A module becomes a function that is called once, when another one first
# needs it, and gives what it exports. So only the forms of `import` and `export` change, and each
# line stays as it was written. Nothing here knows HTTP.


_NAMES: Final = r"\{(?P<names>[^}]*)\}"
_FROM: Final = r'from\s*"(?P<path>\.[^"]+)"'
# The word stands first in each pattern, and only then what may stand before it: searching is ten times as quick so.
_IMPORT_WORD: Final = r"import(?<![^;}\n]import)"
_EXPORT_WORD: Final = r"export(?<![^;}\n]export)"
_IMPORT: Final = re.compile(rf"{_IMPORT_WORD}\s*(?:(?P<one>\w+)|{_NAMES})\s*{_FROM};")
_PASSED_ON: Final = re.compile(rf"{_EXPORT_WORD}\s*{_NAMES}\s*{_FROM};")
_DECLARED: Final = re.compile(
    rf"{_EXPORT_WORD} (?P<kind>(?:async )?function|class|const) (?P<name>\w+)"
)
_LISTED: Final = re.compile(rf"{_EXPORT_WORD}\s*{_NAMES};")
_DEFAULT: Final = re.compile(rf"{_EXPORT_WORD} default ")
_LOADED: Final = re.compile(r'import(?<==> import)\("(?P<path>\.[^"]+)"\)')
_COMMENT: Final = re.compile(
    r"^[ \t]*(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)[ \t]*$", re.MULTILINE | re.DOTALL
)
_LEFT: Final = re.compile(
    rf'{_IMPORT_WORD}\s*[\w{{"*]|{_EXPORT_WORD}\s*[\w{{*]'
    r"|import(?<=[=>(] import)\(|import(?<=await import)\("
)
_BEGIN: Final = """\
// All modules of the dashboard, each as a function. They lie in penstock/ops/dashboard.
const once = (make) => {
  let made;
  return () => (made ??= make());
};
"""


class CannotJoinError(Exception):
    """A module has a form of `import` or `export` that is not known here, or modules import each other in a circle."""


def joined_modules(modules: Mapping[str, str], first: str) -> str:
    """Return one module that runs `first` and holds all that it needs, at once or later.

    `modules`: texts by path, such as `app/main.js`. Raises CannotJoinError.
    """
    parts: dict[str, str] = {}
    waiting = [first]
    while waiting:
        _add(waiting.pop(), modules, parts, waiting, ())
    return "".join([_BEGIN, *parts.values(), f"{_function_of(first)}();\n"])


def joined_styles(styles: Mapping[str, str], paths: list[str]) -> str:
    """Return the rules of these files, in this order."""
    return "".join(f"/* {path} */\n{styles[path].rstrip()}\n" for path in paths)


def _add(
    path: str,
    modules: Mapping[str, str],
    parts: dict[str, str],
    waiting: list[str],
    above: tuple[str, ...],
) -> None:
    """Add a module and what it needs to the parts, and what it loads later to those that wait. `above`: what needs it."""
    if path in parts:
        return
    if path in above:
        raise CannotJoinError(f"modules import each other: {' -> '.join([*above, path])}")
    if path not in modules:
        raise CannotJoinError(f"{above[-1] if above else 'a page'} imports {path}: no such file")
    part = _Part(path, modules[path])
    for needed in part.needed:
        _add(needed, modules, parts, waiting, (*above, path))
    parts[path] = part.text
    waiting += part.later


class _Part:
    """One module as a function. `needed`: paths of modules that it imports; `later`: of those that it loads when it wants them."""

    def __init__(self, path: str, source: str) -> None:
        self._folder = posixpath.dirname(path)
        self.needed: list[str] = []
        self.later: list[str] = []
        exports: list[str] = []

        def imported(found: re.Match[str]) -> str:
            pairs = [("default", found["one"])] if found["one"] else _pairs(found["names"])
            names = ", ".join(f"{there}: {here}" for there, here in pairs)
            return f"const {{ {names} }} = {self._needs(found['path'])}();"

        def passed_on(found: re.Match[str]) -> str:
            at = self._needs(found["path"])
            exports.extend(f"{new}: {at}().{old}" for old, new in _pairs(found["names"]))
            return ""

        def declared(found: re.Match[str]) -> str:
            exports.append(found["name"])
            return f"{found['kind']} {found['name']}"

        def listed(found: re.Match[str]) -> str:
            exports.extend(f"{new}: {old}" for old, new in _pairs(found["names"]))
            return ""

        def default(_found: re.Match[str]) -> str:
            exports.append("default: _default")
            return "const _default = "

        def loaded(found: re.Match[str]) -> str:
            later = self._at(found["path"])
            self.later.append(later)
            return f"Promise.resolve().then({_function_of(later)})"

        text = _COMMENT.sub(_blank, source)
        text = _IMPORT.sub(imported, text)
        text = _PASSED_ON.sub(passed_on, text)
        text = _DECLARED.sub(declared, text)
        text = _LISTED.sub(listed, text)
        text = _DEFAULT.sub(default, text)
        text = _LOADED.sub(loaded, text)
        left = _LEFT.search(text)
        if left is not None:
            raise CannotJoinError(
                f"{path} has a form that cannot be joined: {text[left.start() :][:80]!r}"
            )
        name = _function_of(path)
        self.text = (
            f"// {path}\nconst {name} = once(() => {{{text.rstrip()}\n"
            f"return {{ {', '.join(exports)} }};\n}});\n"
        )

    def _at(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._folder, path))

    def _needs(self, path: str) -> str:
        needed = self._at(path)
        self.needed.append(needed)
        return _function_of(needed)


def _function_of(path: str) -> str:
    return "_" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _pairs(names: str) -> list[tuple[str, str]]:
    """Return what stands between braces: `a, b as c` are (a, a) and (b, c)."""
    parts = [one.split() for one in names.split(",") if one.strip()]
    return [(part[0], part[-1]) for part in parts]


# ---------------------------------------------------------------------- pages


FOLDER: Final = "dashboard"
ARCHIVE: Final = f"{FOLDER}.tar.xz"
_TYPES: Final = {".js": "text/javascript; charset=UTF-8", ".svg": "image/svg+xml"}
_MAIN: Final = "app/main.js"
_STYLES: Final = re.compile(rf'<link rel="stylesheet" href="/{FOLDER}/([^"]+)">\s*')
_LIVE: Final = 'data-server="live"'
_ARCHIVE: Final = 'data-server="archive"'
_FOREVER: Final = "private, max-age=31536000, immutable"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A page loads and asks nothing but this server, and no text of a job can become a script."""


@dataclass(frozen=True, slots=True)
class Page:
    """A file. `tag`: changes with its bytes. `is_forever`: its name does, too, so that a browser need not ask again."""

    content: bytes
    media: str
    tag: str
    is_forever: bool = False


@cache
def pages(*, is_archive: bool = False) -> dict[str, Page]:
    """Return all files by their paths on the server. `/` is the dashboard itself. `is_archive`: the server only knows jobs that have ended."""
    package = files("penstock.ops")
    if (package / FOLDER).is_dir():
        read: dict[str, Page] = {}
        _collect(package / FOLDER, f"/{FOLDER}", read)
    else:
        read = _of_wheel((package / ARCHIVE).read_bytes())
    index = read.pop(f"/{FOLDER}/index.html")
    if not read:  # It says why.
        return {"/": index}
    return _served(index.content.decode(), read, is_archive=is_archive)


def _served(index: str, read: dict[str, Page], *, is_archive: bool) -> dict[str, Page]:
    """Return what is served: all files, and one with all modules and one with all styles, which the page names.

    `index`: the page as it is written, which names all styles in their order.
    """
    texts = {
        path.removeprefix(f"/{FOLDER}/"): page.content.decode()
        for path, page in read.items()
        if path.endswith((".js", ".css"))
    }
    found = dict(read)
    named = _STYLES.findall(index)
    index = _STYLES.sub("", index)
    style = _kept("styles.css", joined_styles(texts, named), found)
    script = _kept("app.js", joined_modules(texts, _MAIN), found)
    index = index.replace(f"/{FOLDER}/{_MAIN}", script)
    index = index.replace("</head>", f'  <link rel="stylesheet" href="{style}">\n  </head>')
    if is_archive:  # So that a page need not ask before it begins to ask for its answers.
        index = index.replace(_LIVE, _ARCHIVE)
    found["/"] = _page("index.html", index.encode())
    return found


def _kept(name: str, text: str, found: dict[str, Page]) -> str:
    """Add a file under a name that changes with its bytes. Returns its path on the server."""
    page = _page(name, text.encode())
    stem, _, kind = name.rpartition(".")
    path = f"/{FOLDER}/{stem}.{page.tag[1:13]}.{kind}"
    found[path] = replace(page, is_forever=True)
    return path


def _of_wheel(archive: bytes) -> dict[str, Page]:
    try:
        return unpacked(archive)
    except tarfile.CompressionError as error:
        text = (
            f"The dashboard cannot be shown, because this Python was built without lzma: {error}."
        )
        return {f"/{FOLDER}/index.html": Page(text.encode(), "text/plain; charset=UTF-8", '"none"')}


def unpacked(archive: bytes) -> dict[str, Page]:
    """Return the files of a wheel's archive by their paths on the server."""
    found: dict[str, Page] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as entries:
        for entry in entries:
            content = entries.extractfile(entry)
            if content is not None:
                found[f"/{FOLDER}/{entry.name}"] = _page(entry.name, content.read())
    return found


def _collect(folder: Traversable, path: str, found: dict[str, Page]) -> None:
    for one in folder.iterdir():
        below = f"{path}/{one.name}"
        if one.is_dir():
            _collect(one, below, found)
        elif not one.name.endswith((".py", ".pyc", ".d.ts")):
            found[below] = _page(one.name, one.read_bytes())


def _page(name: str, content: bytes) -> Page:
    return Page(content, _media(name), f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _media(name: str) -> str:
    known = _TYPES.get(name[name.rindex(".") :])
    return known or mimetypes.guess_type(name)[0] or "application/octet-stream"


def page_response(request: Request, page: Page) -> Response:
    """Return the file, or say that the browser has it already."""
    headers = {
        "Cache-Control": _FOREVER if page.is_forever else "no-cache",
        "ETag": page.tag,
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    return Response(page.content, 200, headers, page.media)
