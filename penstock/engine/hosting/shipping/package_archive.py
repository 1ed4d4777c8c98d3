"""Penstock itself as a zip that any executor can import from: sources with their bytecode. Operations stay on the driver.

The bytecode is of this Python version and is not checked against the source; another version
ignores it and compiles the source.
"""

from __future__ import annotations

import functools
import importlib._bootstrap_external as bootstrap
import importlib.util
import io
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

import penstock
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
                _bytecode(path, source, f"{ARCHIVE_ROOT}{name}"),
            )
    return buffer.getvalue()


def _bytecode(path: Path, source: bytes, name: str) -> bytes:
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
