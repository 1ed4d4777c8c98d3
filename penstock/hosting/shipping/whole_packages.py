"""What lies in a program's packages besides the modules that are loaded: modules that functions import later, and data files.

Looks at files only, and imports none. A folder that is too large is passed by: see `Companions`.
"""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.hosting.shipping.distributions import Ownership, is_extension, own_folders

LIMIT_BYTES: Final = 4 * 1024 * 1024
_LIMIT_FILES: Final = 5_000


class _File(NamedTuple):
    """`inside`: below the entry of `sys.path`, with slashes."""

    inside: str
    size: int


class Place(NamedTuple):
    """A package, or the folder of a module without one. `root`: the entry of `sys.path`, a folder or a zip. `folder`: below it."""

    root: str
    folder: str


def place_of(ownership: Ownership, root: str, inside: str) -> Place | None:
    """Return where the companions of a module lie. None: beside it is no package of the program.

    `inside`: the module's file below `root`, with slashes.
    """
    if os.path.isfile(root):  # A zip on the import path.
        top, slash, _ = inside.partition("/")
        return Place(root, top) if slash else None
    unit = ownership.unit_of(root, inside)
    folder = inside.rpartition("/")[0] if unit.path == inside else unit.path
    return Place(root, folder) if folder else None


def companions(
    places: Iterable[Place], ownership: Ownership, limit_bytes: int = LIMIT_BYTES
) -> Mapping[str, bytes]:
    """Return name in the archive -> content of what lies in these places and is the program's own.

    Of a package that is larger than what is left of `limit_bytes`, only its modules go along. If these are too large as well, none
    does: which half of a package is there must not depend on the names of its files. Files that cannot be read are left out.
    """
    found: dict[str, bytes] = {}
    left = limit_bytes
    for place in sorted(set(places)):
        files = _files_of(place, ownership, left)
        if files is None:
            files = _files_of(place, ownership, left, suffix=".py") or []
        left -= sum(one.size for one in files)
        found |= _contents(place.root, files)
    return found


def _files_of(
    place: Place, ownership: Ownership, limit_bytes: int, suffix: str = ""
) -> list[_File] | None:
    """None: these are too many."""
    files: list[_File] = []
    left = limit_bytes
    for one in _in_zip(place) if os.path.isfile(place.root) else _in_folder(place):
        if not one.inside.endswith(suffix):
            continue
        left -= one.size
        if left < 0 or len(files) >= _LIMIT_FILES:
            return None
        files.append(one)
    return [one for one in files if _is_own(place.root, one.inside, ownership)]


def _is_own(root: str, inside: str, ownership: Ownership) -> bool:
    return ownership.owner_of(ownership.unit_of(root, inside)) is None


def _in_folder(place: Place) -> Iterator[_File]:
    for parent, folders, files in os.walk(os.path.join(place.root, place.folder)):
        folders[:] = own_folders(parent, folders)
        for name in sorted(files):
            if _is_content(name):
                path = os.path.join(parent, name)
                with contextlib.suppress(OSError):  # It is gone, or a link that leads nowhere.
                    inside = Path(path).relative_to(place.root).as_posix()
                    yield _File(inside, os.path.getsize(path))


def _in_zip(place: Place) -> Iterator[_File]:
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(place.root) as archive:
        for one in archive.infolist():
            name = one.filename
            is_inside = name.startswith(f"{place.folder}/") and not one.is_dir()
            if is_inside and _is_content(name.rpartition("/")[2]):
                yield _File(name, one.file_size)


def _is_content(name: str) -> bool:
    return not (name.startswith(".") or name.endswith(".pyc") or is_extension(name))


def _contents(root: str, files: Iterable[_File]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    if os.path.isfile(root):
        with zipfile.ZipFile(root) as archive:
            return {one.inside: archive.read(one.inside) for one in files}
    for one in files:
        with contextlib.suppress(OSError):
            found[one.inside] = Path(root, one.inside).read_bytes()
    return found
