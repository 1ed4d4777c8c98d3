"""Ships user code to the TaskManagers: functions by PySpark's cloudpickle, modules as files.

Functions, lambdas and classes of the main script travel by value inside the chains' blobs. The
user's own modules (loaded, but neither installed, nor of the standard library, nor Penstock's)
travel as files and are importable there under their own names, so that records of their classes
keep one identity everywhere. This happens without any call of the program. Installed packages are
not shipped.
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
    """Return a zip of the user's own loaded modules and of named files; empty if there are none.

    `python_files`: modules (.py), directories and archives whose contents are to be importable. The
    same files give the same bytes. Raises: ConfigurationError for a missing file, GraphError above
    `MODULES_LIMIT_BYTES`.
    """
    contents = modules_beside_main() | _loaded_modules()
    for path in python_files:
        contents.update(_named_file(Path(local_path(path) or path)))
    if not contents:
        return b""
    total = sum(map(len, contents.values()))
    if total > MODULES_LIMIT_BYTES:
        raise GraphError(
            f"the program's own modules have {total:,} bytes, but at most "
            f"{MODULES_LIMIT_BYTES:,} are shipped. Install them as a package on the executors "
            "instead."
        )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return buffer.getvalue()


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


def _loaded_modules() -> dict[str, bytes]:
    """Return name in the archive -> source, for the user's loaded modules and the packages around them."""
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
            continue  # The module was loaded by another name than its file's.
        source = _source_of(module, path)
        if source is not None:
            found[inside] = source
    return found


def _source_of(module: Any, path: str) -> bytes | None:
    """Read a module's source, from its file or out of its zip."""
    with contextlib.suppress(OSError):
        return Path(path).read_bytes()
    get_data = getattr(getattr(module, "__loader__", None), "get_data", None)
    with contextlib.suppress(OSError, TypeError):
        return bytes(get_data(path)) if get_data is not None else None
    return None


def modules_beside_main() -> dict[str, bytes]:
    """Return modules beside the main script, which functions may import later; at most `_BESIDE_LIMIT`."""
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
        with contextlib.suppress(OSError):
            total += os.path.getsize(path)
            if total > _BESIDE_LIMIT:
                break
            found[inside] = Path(path).read_bytes()
    return found


def _sources_in(folder: str, package: str | None) -> Iterator[str]:
    """Return top-level modules and the content of packages, or of this package only. Unreadable files are left out."""
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
