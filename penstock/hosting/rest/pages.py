"""The dashboard's files: what a browser loads before it asks the REST API. They lie in `penstock/dashboard`, and nothing builds them.

A wheel has them in one archive, `penstock/dashboard.tar.xz` (`scripts/pack_dashboard.py`). The page names one file of all modules
and one of all styles, which are put together here: a request for each of them would take a browser longer than all the rest.
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import re
import tarfile
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.hosting.rest.joined import joined_modules, joined_styles

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
    package = files("penstock")
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
