"""User code to the TaskManagers: functions by PySpark's cloudpickle, modules as files.

Functions, lambdas and classes of the main script travel by value inside the chains' blobs. Modules of the user's
own (whatever is loaded and neither installed, nor of the standard library, nor ours) travel as files and are
importable there under their own names, so that records of their classes keep one identity everywhere.
Nobody has to ask for it. Installed packages are not shipped.
"""

from __future__ import annotations

import io
import os
import pickle
import site
import sys
import sysconfig
import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from penstock.model.errors import ConfigurationError, GraphError

MODULES_LIMIT_BYTES: Final = 32 * 1024 * 1024
_UNPICKLING: Final = threading.RLock()
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def serialize(value: object) -> bytes:
    """Pickle with functions and classes of the main script by value.

    Raises: whatever pickling raises, with the reason; the caller names the operator.
    """
    from pyspark import cloudpickle

    buffer = io.BytesIO()
    cloudpickle.CloudPickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def deserialize(data: bytes) -> Any:
    """On a TaskManager, after authentication only.

    One at a time: unpickling imports, and tasks that start together must not meet half-imported modules.
    """
    with _UNPICKLING:
        return pickle.loads(data)


def dumps_records(value: object) -> bytes:
    """Records for the wire: plain pickle, or cloudpickle for objects of the main script's own classes."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return serialize(value)


def user_modules_archive(python_files: Sequence[str] = ()) -> bytes:
    """A zip of the user's own loaded modules and of files that were named; empty when there are none.

    `python_files`: modules (.py), directories and archives whose contents shall be importable.
    The same files give the same bytes. Raises: ConfigurationError for a missing file, GraphError above
    `MODULES_LIMIT_BYTES`.
    """
    contents = {name: Path(path).read_bytes() for name, path in _user_module_files().items()}
    for path in python_files:
        contents.update(_named_file(Path(path.removeprefix("file://"))))
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


def _user_module_files() -> dict[str, str]:
    """Name in the archive -> path, for loaded modules and the packages around them."""
    skipped = _foreign_prefixes()
    files: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py"):
            continue
        path = os.path.abspath(path)
        if name == "__main__" or name.split(".")[0] == "penstock" or path.startswith(skipped):
            continue
        parts = name.split(".")
        is_package = os.path.basename(path) == "__init__.py"
        inside = "/".join(parts) + ("/__init__.py" if is_package else ".py")
        if Path(path).as_posix().endswith(inside):  # else: loaded by another name than its file's
            files[inside] = path
    return files


def _foreign_prefixes() -> tuple[str, ...]:
    paths = {*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, *site.getsitepackages()}
    paths.add(site.getusersitepackages())
    keep = os.path.abspath(os.getcwd())
    folders = {os.path.abspath(path) for path in paths}
    return tuple(path + os.sep for path in folders if not keep.startswith(path + os.sep))
