"""Penstock and a program's modules inside Spark's Python worker, from archives that Spark has brought.

Shipped by value with the bodies of Spark tasks, so that executors need not have Penstock: at module level it imports nothing of
it. What is imported stays in the worker, which Spark reuses, until a job with other archives comes.
"""

from __future__ import annotations

import pathlib
from typing import Any, NamedTuple


class Archives(NamedTuple):
    """`contents`: broadcast zips, one for each of `names`, which are of their contents."""

    names: tuple[str, ...]
    contents: Any


class Appended:
    """`AccumulatorParam` of lists: what each task adds comes behind what is there."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # ruff: ignore[invalid-function-name]
        value1.extend(value2)
        return value1


def import_shipped(archives: Archives, module: str) -> Any:
    """The module, of what these archives hold."""
    import importlib
    import sys

    installed, folder = sys.__dict__.get("_penstock_archives", ((), None))
    if installed != archives.names:
        sys.__dict__["_penstock_archives"] = archives.names, _install(archives, folder)
    return importlib.import_module(module)


def _install(archives: Archives, former: str | None) -> str:
    """Put the archives on the path, in place of those in the folder `former`. Gives their folder, which goes with the application."""
    import importlib
    import os
    import shutil
    import sys
    import tempfile

    from pyspark import SparkFiles

    for module in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
        del sys.modules[module]
    if former is not None:
        sys.path[:] = [path for path in sys.path if not path.startswith(former)]
        shutil.rmtree(former, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=f"penstock-{os.getpid()}-", dir=SparkFiles.getRootDirectory())
    for name, content in zip(archives.names, archives.contents.value, strict=True):
        path = pathlib.Path(folder) / f"{name}.zip"
        path.write_bytes(content)
        sys.path.insert(0, str(path))
    importlib.invalidate_caches()
    return folder
