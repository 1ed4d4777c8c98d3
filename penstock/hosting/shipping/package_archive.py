"""Penstock itself as a zip that any executor can import from: sources with their bytecode.

The bytecode is of this Python version and is not checked against the source; another version
ignores it and compiles the source.
"""

from __future__ import annotations

import functools
import importlib._bootstrap_external as bootstrap
import importlib.util
import io
import zipfile
from pathlib import Path
from typing import Final

import penstock
from penstock.model.own_places import ARCHIVE_ROOT

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


@functools.cache
def package_archive() -> bytes:
    """Return the zip. The same sources give the same bytes."""
    root = Path(penstock.__file__).parent
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(root.rglob("*.py")):
            name = f"penstock/{path.relative_to(root).as_posix()}"
            source = path.read_bytes()
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), source)
            archive.writestr(
                zipfile.ZipInfo(name + "c", _EPOCH), _bytecode(source, f"{ARCHIVE_ROOT}{name}")
            )
    return buffer.getvalue()


def _bytecode(source: bytes, name: str) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    data: bytes = bootstrap._code_to_hash_pyc(  # type: ignore[attr-defined]
        code, importlib.util.source_hash(source), checked=False
    )
    return data
