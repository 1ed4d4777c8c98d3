"""User code to the TaskManagers: functions by PySpark's cloudpickle, modules as files.

Functions, lambdas and classes of the main script travel by value inside the chains' blobs. Modules of the user's
own (whatever is loaded and neither installed, nor of the standard library, nor ours) travel as files and are
importable there under their own names, so that records of their classes keep one identity everywhere.
Nobody has to ask for it. Installed packages are not shipped.
"""

from __future__ import annotations

import contextlib
import io
import os
import site
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.hosting.file_systems import local_path
from penstock.model.errors import ConfigurationError, GraphError

MODULES_LIMIT_BYTES: Final = 32 * 1024 * 1024
_BESIDE_LIMIT: Final = 4 * 1024 * 1024
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
    """A zip of the user's own loaded modules and of files that were named; empty when there are none.

    `python_files`: modules (.py), directories and archives whose contents shall be importable.
    The same files give the same bytes. Raises: ConfigurationError for a missing file, GraphError above
    `MODULES_LIMIT_BYTES`.
    """
    contents = _beside_main() | _loaded_modules()
    for path in python_files:
        contents.update(_named_file(Path(local_path(path) or path)))
    if not contents:
        return b""
    total = sum(map(len, contents.values()))
    if total > MODULES_LIMIT_BYTES:
        raise GraphError(
            f"the program's own modules have {total:,} bytes, more than {MODULES_LIMIT_BYTES:,}. "
            "Install them as a package on the executors instead."
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return buffer.getvalue()


def _named_file(path: Path) -> dict[str, bytes]:
    """What one `add_python_file` makes importable: the file itself, or what is in it."""
    if path.is_dir():
        inside = [file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc"]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in inside}
    if not path.is_file():
        raise ConfigurationError(f"add_python_file: there is no file or directory {str(path)!r}")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return {n: archive.read(n) for n in archive.namelist() if not n.endswith("/")}
    return {path.name: path.read_bytes()}


def _loaded_modules() -> dict[str, bytes]:
    """Name in the archive -> source, for loaded modules of the user's and the packages around them."""
    skipped = _foreign_prefixes()
    found: dict[str, bytes] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        path = os.path.abspath(path)
        if name.split(".")[0] in _NEVER_SHIPPED or path.startswith(skipped):
            continue
        inside = name.replace(".", "/")
        inside += "/__init__.py" if os.path.basename(path) == "__init__.py" else ".py"
        if not Path(path).as_posix().endswith(inside):
            continue  # loaded by another name than its file's
        source = _source_of(module, path)
        if source is not None:
            found[inside] = source
    return found


def _source_of(module: Any, path: str) -> bytes | None:
    """From the file, or out of the zip that the module came from."""
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    get_data = getattr(getattr(module, "__loader__", None), "get_data", None)
    with contextlib.suppress(OSError, TypeError):
        return bytes(get_data(path)) if get_data is not None else None
    return None


def _beside_main() -> dict[str, bytes]:
    """Modules that stand beside the main script, for imports inside functions; up to `_BESIDE_LIMIT`."""
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None)
    if not isinstance(script, str) or not os.path.isfile(script):
        return {}  # a notebook, or -c
    real, foreign = Path(script).resolve(), _foreign_prefixes()
    if str(real).startswith(foreign) or os.path.abspath(script).startswith(foreign):
        return {}  # an installed program (pytest, say)
    folder = real.parent
    package = getattr(getattr(main, "__spec__", None), "parent", None)
    if (
        package
    ):  # `python -m package.program`: its neighbours are the package's, not top-level modules
        folder = folder.parents[package.count(".")]
        package = package.split(".")[0]
    found: dict[str, bytes] = {}
    total = 0
    for path in _sources_in(str(folder), package):
        inside = Path(path).relative_to(folder).as_posix()
        if inside.split("/")[0].removesuffix(".py") in _NEVER_SHIPPED or path == str(real):
            continue
        with contextlib.suppress(OSError):
            total += os.path.getsize(path)
            if total > _BESIDE_LIMIT:
                break
            found[inside] = Path(path).read_bytes()
    return found


def _sources_in(folder: str, package: str | None) -> Iterator[str]:
    """Top-level modules and what is in packages, or in this package only; nothing that cannot be read."""
    for parent, folders, files in os.walk(folder):
        is_top = parent == folder
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".")
            and name != "__pycache__"
            and not os.path.isfile(os.path.join(parent, name, "pyvenv.cfg"))
            and (not is_top or os.path.isfile(os.path.join(parent, name, "__init__.py")))
            and (not is_top or package in {None, "", name})
        )
        if is_top and package:
            continue
        for name in sorted(files):
            if name.endswith(".py") and not name.startswith("."):
                yield os.path.join(parent, name)


def _foreign_prefixes() -> tuple[str, ...]:
    paths = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *site.getsitepackages()}
    paths.add(site.getusersitepackages())
    keep = os.path.abspath(os.getcwd())
    folders = {os.path.abspath(path) for path in paths}
    return tuple(path + os.sep for path in folders if not keep.startswith(path + os.sep))
