"""Penstock itself as a zip that any executor can import from: sources with their bytecode. Operations stay on the driver.

The bytecode is of this Python version and is not checked against the source; another version
ignores it and compiles the source.

Archives for Spark's Python workers, broadcast once for a job. See `worker_imports`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib._bootstrap_external as bootstrap
import importlib.util
import io
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

from pyspark import SparkContext, cloudpickle

import penstock
from penstock.engine.hosting.shipping import worker_files, worker_imports
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.model.own_places import ARCHIVE_ROOT

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_OPERATIONS: Final = "penstock/ops/"


@functools.cache
def package_archive() -> bytes:
    """Return the zip. Bytecode that Python has cached is used, for compiling takes longer than a TaskManager's start; what is not
    cached yet is, as by an import.
    """
    root = Path(penstock.__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(root.rglob("*.py")):
            name = f"penstock/{path.relative_to(root).as_posix()}"
            if name.startswith(_OPERATIONS):
                continue
            source = path.read_bytes()
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
            archive.writestr(
                zipfile.ZipInfo(name + "c", _EPOCH),
                bytecode_of(path, source, f"{ARCHIVE_ROOT}{name}"),
            )
    return buffer.getvalue()


def bytecode_of(path: Path, source: bytes, name: str) -> bytes:
    code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    assert code is not None  # There is a source.
    data: bytes = bootstrap._code_to_hash_pyc(  # type: ignore[attr-defined]
        _renamed(code, name), importlib.util.source_hash(source), checked=False
    )
    return data


def _renamed(code: CodeType, name: str) -> CodeType:
    """The same code with another file's name."""
    constants = (
        _renamed(one, name) if isinstance(one, CodeType) else one for one in code.co_consts
    )
    return code.replace(co_filename=name, co_consts=tuple(constants))


def ship(
    context: SparkContext, modules: bytes, files: WorkerFiles | None = None
) -> worker_imports.Archives:
    """Broadcast Penstock and the program's own modules (a zip, or empty).

    `files`: what else the program brings for its functions. The caller destroys `contents` when the
    job is over.
    """
    cloudpickle.register_pickle_by_value(worker_imports)
    cloudpickle.register_pickle_by_value(worker_files)
    archives = [package_archive(), modules] if modules else [package_archive()]
    names = tuple(hashlib.sha256(one).hexdigest()[:16] for one in archives)
    contents = context.broadcast(tuple(archives))
    return worker_imports.Archives(names, contents, files or WorkerFiles())
