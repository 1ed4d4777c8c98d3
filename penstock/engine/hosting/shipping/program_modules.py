"""Ships user code to the TaskManagers: functions by PySpark's cloudpickle, modules as files.

Functions, lambdas and classes of the main script travel by value inside the chains' blobs. The
user's own modules (loaded, but neither installed, nor of the standard library, nor Penstock's)
travel as files and are importable there under their own names, so that records of their classes
keep one identity everywhere. The rest of their packages goes along, data files too, as far as it is
small: see `whole_packages`. This happens without any call of the program. Installed packages are
not shipped, nor what a distribution has brought to another folder, nor packages with compiled
modules: half of such a package would hide a whole one on the executor. The archive names them.

Which modules outside of the installed packages are somebody else's all the same: a distribution's, or compiled ones.

Looks at folders only, and imports nothing of them. Such folders come from `pip install --target`, PYTHONPATH and .pth files.
Source: the Python packaging specifications "Recording installed projects" and "Core metadata".
"""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
import os
import site
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from penstock.engine.hosting.os.file_systems import local_path
from penstock.engine.hosting.shipping import missing_packages
from penstock.engine.model.errors import ConfigurationError, GraphError

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
        listed = one.read_text("top_level.txt")
        for top in listed.split() if listed else [name.replace("-", "_")]:
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
    """Return where the companions of a module lie. None: next to it is no package of the program.

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


MODULES_LIMIT_BYTES: Final = 32 * 1024 * 1024
_NEXT_TO_MAIN_BYTES: Final = 4 * 1024 * 1024
_NEVER_SHIPPED: Final = frozenset({
    "__main__",
    "penstock",
    "pyspark",
    "py4j",
    "pyarrow",
    "numpy",
    "pandas",
    "cloudpickle",
})
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def user_modules_archive(python_files: Sequence[str] = ()) -> bytes:
    """Return a zip of the user's own loaded modules and of named files; empty if there are none.

    `python_files`: modules (.py), directories and archives whose contents are to be importable. The
    same files give the same bytes. Raises: ConfigurationError for a missing file, GraphError above
    `MODULES_LIMIT_BYTES`.
    """
    ownership = Ownership()
    loaded, foreign, places = _loaded_modules(ownership)
    contents = {**companions(places, ownership), **modules_next_to_main(ownership), **loaded}
    for path in python_files:
        contents.update(_named_file(Path(local_path(path) or path)))
    if foreign:
        contents[missing_packages.FILE] = json.dumps(foreign, sort_keys=True).encode()
    if not contents:
        return b""
    total = sum(map(len, contents.values()))
    if total > MODULES_LIMIT_BYTES:
        raise GraphError(
            f"the program's own modules have {total:,} bytes, but at most "
            f"{MODULES_LIMIT_BYTES:,} are shipped. Install them as a package on the executors "
            "instead."
        )
    return _zipped(contents)


class _Newest:
    """The archive that was made last, and of what: one job after the other ships the same."""

    made: tuple[bytes, bytes] = (b"", b"")


def _zipped(contents: Mapping[str, bytes]) -> bytes:
    entries = sorted(contents.items())
    digest = hashlib.sha256()
    for name, data in entries:
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    known, archive = _Newest.made
    if known != digest.digest():
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
            for name, data in entries:
                target.writestr(zipfile.ZipInfo(name, _EPOCH), data)
        archive = buffer.getvalue()
        _Newest.made = digest.digest(), archive
    return archive


def _named_file(path: Path) -> dict[str, bytes]:
    """Return what one `add_python_file` makes importable: the file itself, or its content."""
    if path.is_dir():
        inside = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in inside}
    if not path.is_file():
        raise ConfigurationError(f"add_python_file: there is no file or directory {str(path)!r}")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {n: archive.read(n) for n in archive.namelist() if not n.endswith("/")}
    return {path.name: path.read_bytes()}


def _loaded_modules(
    ownership: Ownership,
) -> tuple[dict[str, bytes], dict[str, str], set[Place]]:
    """Return name in the archive -> source, for the user's loaded modules; of what is somebody else's: module -> distribution;
    and where the rest of the user's packages lies.
    """
    skipped = _foreign_prefixes()
    found: dict[str, bytes] = {}
    foreign: dict[str, str] = {}
    places: set[Place] = set()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not (path.endswith(".py") or is_extension(path)):
            continue
        path = os.path.abspath(path) if not os.path.isabs(path) else path
        inside = _name_in_archive(name, path, skipped)
        if inside is None:
            continue
        root = os.path.normpath(path)[: -len(inside) - 1]
        unit = ownership.unit_of(root, inside)
        owner = ownership.owner_of(unit)
        if owner is not None:
            foreign |= dict.fromkeys(_with_parents(unit.module), owner)
            continue
        source = _source_of(module, path)
        if source is not None:
            found[inside] = source
            places.add(place_of(ownership, root, inside) or Place(root, ""))
    return found, foreign, {place for place in places if place.folder}


def _with_parents(module: str) -> Iterator[str]:
    """Names that Python looks for, one after the other, to import a module."""
    parts = module.split(".")
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


@functools.lru_cache(maxsize=1 << 14)
def _name_in_archive(name: str, path: str, skipped: tuple[str, ...]) -> str | None:
    """Return what the archive calls a module; None: it is not the user's, or was loaded by another name than its file's."""
    path = os.path.normpath(path)
    if name.split(".", maxsplit=1)[0] in _NEVER_SHIPPED or path.startswith(skipped):
        return None
    folder, _, last = name.replace(".", "/").rpartition("/")
    stem, dot, suffix = os.path.basename(path).partition(".")
    parts = [folder, last] if stem == "__init__" else [folder]
    inside = "/".join(filter(None, [*parts, f"{stem}{dot}{suffix}"]))
    is_named_so = stem in {last, "__init__"} and Path(path).as_posix().endswith(f"/{inside}")
    return inside if is_named_so else None


def _source_of(module: Any, path: str) -> bytes | None:
    """Read a module's source, from its file or out of its zip."""
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    get_data = getattr(getattr(module, "__loader__", None), "get_data", None)
    with contextlib.suppress(OSError, TypeError):
        return bytes(get_data(path)) if get_data is not None else None
    return None


def modules_next_to_main(ownership: Ownership) -> dict[str, bytes]:
    """Return the program's own modules next to the main script, which functions may import later;
    at most `_NEXT_TO_MAIN_BYTES`.
    """
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if not isinstance(script, str) or not os.path.isfile(script):
        return {}  # A notebook, or python -c.
    real, foreign = Path(script).resolve(), _foreign_prefixes()
    if str(real).startswith(foreign) or os.path.abspath(script).startswith(foreign):
        return {}  # An installed program, such as pytest.
    folder = real.parent
    package = getattr(getattr(main, "__spec__", None), "parent", None)
    if package:
        # `python -m package.program`: its neighbours belong to the package and are not top-level
        # modules.
        folder = folder.parents[package.count(".")]
        package = package.split(".")[0]
    found: dict[str, bytes] = {}
    total = 0
    for path in _sources_in(str(folder), package):
        inside = Path(path).relative_to(folder).as_posix()
        if inside.split("/")[0].removesuffix(".py") in _NEVER_SHIPPED or path == str(real):
            continue
        if ownership.owner_of(ownership.unit_of(str(folder), inside)) is not None:
            continue
        with contextlib.suppress(OSError):
            total += os.path.getsize(path)
            if total > _NEXT_TO_MAIN_BYTES:
                break
            found[inside] = Path(path).read_bytes()
    return found


def _sources_in(folder: str, package: str | None) -> Iterator[str]:
    """Return top-level modules and the content of packages, or of this package only. Unreadable files are left out."""
    for parent, folders, files in os.walk(folder):
        is_top = parent == folder
        folders[:] = [
            name
            for name in own_folders(parent, folders)
            if not is_top
            or (
                os.path.isfile(os.path.join(parent, name, "__init__.py"))
                and package in {None, "", name}
            )
        ]
        if is_top and package:
            continue
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith("."):
                yield os.path.join(parent, name)


def _foreign_prefixes() -> tuple[str, ...]:
    paths = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *site.getsitepackages()}
    paths.add(site.getusersitepackages())
    keep = os.path.abspath(os.getcwd())
    folders = sorted({os.path.abspath(path) for path in paths})
    return tuple(path + os.sep for path in folders if not keep.startswith(path + os.sep))
