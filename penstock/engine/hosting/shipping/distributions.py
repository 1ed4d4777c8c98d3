"""Which modules outside of the installed packages are somebody else's all the same: a distribution's, or compiled ones.

Looks at folders only, and imports nothing of them. Such folders come from `pip install --target`, PYTHONPATH and .pth files.
Source: the Python packaging specifications "Recording installed projects" and "Core metadata".
"""

from __future__ import annotations

import csv
import functools
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distributions
from types import MappingProxyType
from typing import Final, NamedTuple

_PROJECT_FILES: Final = ("pyproject.toml", "setup.py", "setup.cfg")
_SUFFIXES: Final = tuple(EXTENSION_SUFFIXES)


class Unit(NamedTuple):
    """What is shipped as a whole or not at all: a package with its `__init__`, or a module outside of one.

    `root`: the entry of `sys.path`. `path`: below it, with slashes; a package's folder or a module's file.
    """

    root: str
    path: str

    @property
    def module(self) -> str:
        """The name under which it is imported."""
        parents, _, last = self.path.rpartition("/")
        return ".".join(filter(None, [*parents.split("/"), last.partition(".")[0]]))


class Ownership:
    """Answers for one look at the program. Folders that change later need another one."""

    def __init__(self) -> None:
        self._owners: dict[Unit, str | None] = {}
        self._packages: dict[str, bool] = {}

    def unit_of(self, root: str, inside: str) -> Unit:
        """`inside`: a module's file below `root`, with slashes."""
        folders = inside.split("/")[:-1]
        for count in range(1, len(folders) + 1):
            folder = "/".join(folders[:count])
            if self._is_package(os.path.join(root, folder)):
                return Unit(root, folder)
        return Unit(root, inside)

    def owner_of(self, unit: Unit) -> str | None:
        """Return the distribution that has brought it, as "name==version"; "": none has, but it is compiled; None: it is
        the program's own.
        """
        if unit not in self._owners:
            self._owners[unit] = self._look(unit)
        return self._owners[unit]

    def _look(self, unit: Unit) -> str | None:
        found = owners_in(unit.root)
        parts = unit.path.split("/")
        for count in range(len(parts), 0, -1):
            owner = found.get("/".join(parts[:count]))
            if owner is not None:
                return owner
        return "" if _is_compiled(os.path.join(unit.root, unit.path)) else None

    def _is_package(self, folder: str) -> bool:
        if folder not in self._packages:
            self._packages[folder] = any(
                os.path.isfile(os.path.join(folder, f"__init__{suffix}"))
                for suffix in (".py", ".pyc", *_SUFFIXES)
            )
        return self._packages[folder]


def is_extension(path: str) -> bool:
    """Whether Python would load this file as a compiled module."""
    return path.endswith(_SUFFIXES)


def own_folders(parent: str, names: Iterable[str]) -> list[str]:
    """Return those folders in `parent` that may hold parts of a program, sorted: not hidden ones, caches and virtual environments."""
    return sorted(
        name
        for name in names
        if not name.startswith(".")
        and name != "__pycache__"
        and not os.path.isfile(os.path.join(parent, name, "pyvenv.cfg"))
    )


def owners_in(root: str) -> Mapping[str, str]:
    """Return file or package below a folder -> "name==version" of the distribution that names it. Empty for what is no folder."""
    try:
        changed_ns = os.stat(root).st_mtime_ns
    except OSError:
        return {}
    return _owners_in(root, changed_ns) if os.path.isdir(root) else {}


@functools.lru_cache(maxsize=64)
def _owners_in(
    root: str,
    changed_ns: int,  # ruff: ignore[unused-function-argument] - part of the cache key
) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for one in distributions(path=[root]):
        if _is_checkout(root, one):
            continue
        name = one.metadata["Name"]
        if not name:
            continue  # A folder that pip could not remove.
        owner = f"{name}=={one.version}"
        for path in _paths(one, name):
            found.setdefault(path, owner)
    return MappingProxyType(found)


def _is_checkout(root: str, one: Distribution) -> bool:
    """Whether this is the description of the sources that it lies in, which a build or `pip install -e` leaves there."""
    if _installed_files(one) is not None:
        return False
    places = (root, os.path.dirname(root))  # `src` lies below the project's files.
    return any(os.path.isfile(os.path.join(p, name)) for p in places for name in _PROJECT_FILES)


def _installed_files(one: Distribution) -> str | None:
    return one.read_text("RECORD") or one.read_text("installed-files.txt")


def _paths(one: Distribution, name: str) -> Iterator[str]:
    """Files of a distribution, and its packages: what is found in them later belongs to it too."""
    record = one.read_text("RECORD")
    for row in csv.reader((record or "").splitlines()):
        if not row:
            continue
        yield row[0]
        folder, _, file = row[0].rpartition("/")
        if folder and file.partition(".")[0] == "__init__":
            yield folder
    if not record:  # Debian's packages and old setup.py: these name no file that can be compared.
        told = one.read_text("top_level.txt")
        for top in told.split() if told else [name.replace("-", "_")]:
            yield top
            yield f"{top}.py"
            for suffix in _SUFFIXES:
                yield f"{top}{suffix}"


def _is_compiled(path: str) -> bool:
    if not os.path.isdir(path):
        return is_extension(path)
    for parent, folders, files in os.walk(path):
        folders[:] = own_folders(parent, folders)
        if any(is_extension(name) for name in files):
            return True
    return False
