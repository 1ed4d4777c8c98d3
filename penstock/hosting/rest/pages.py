"""The dashboard's files: what a browser loads before it asks the REST API. They lie in `penstock/dashboard`, and nothing builds them.

A wheel has them in one archive, `penstock/dashboard.tar.xz` (`scripts/pack_dashboard.py`).
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import tarfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

FOLDER: Final = "dashboard"
ARCHIVE: Final = f"{FOLDER}.tar.xz"
_TYPES: Final = {".js": "text/javascript; charset=UTF-8", ".svg": "image/svg+xml"}
_LIVE: Final = b'data-server="live"'
_ARCHIVE: Final = b'data-server="archive"'
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""A page loads and asks nothing but this server, and no text of a job can become a script."""


@dataclass(frozen=True, slots=True)
class Page:
    """A file. `tag`: changes with its bytes."""

    content: bytes
    media: str
    tag: str


@cache
def pages(*, is_archive: bool = False) -> dict[str, Page]:
    """Return all files by their paths on the server. `/` is the dashboard itself. `is_archive`: the server only knows jobs that have ended."""
    found: dict[str, Page] = {}
    package = files("penstock")
    if (package / FOLDER).is_dir():
        _collect(package / FOLDER, f"/{FOLDER}", found)
    else:
        found |= _of_wheel((package / ARCHIVE).read_bytes())
    index = found.pop(f"/{FOLDER}/index.html").content
    # So that a page need not ask before it begins to ask for its answers.
    found["/"] = _page("index.html", index.replace(_LIVE, _ARCHIVE) if is_archive else index)
    return found


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
        "Cache-Control": "no-cache",
        "ETag": page.tag,
        "Content-Security-Policy": _POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    if request.headers.get("if-none-match") == page.tag:
        return Response(status_code=304, headers=headers)
    return Response(page.content, 200, headers, page.media)
