"""Imports Penstock and a program's modules in Spark's Python worker, from archives that Spark has
brought.

Shipped by value with the bodies of Spark tasks, so that executors need not have Penstock. Of
Penstock, this module imports only `worker_files` at module level, which is shipped the same way.
Imported modules stay in the worker, which Spark reuses, until a job with other archives comes.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from typing import Any, NamedTuple

from penstock.engine.hosting.shipping.worker_files import WorkerFiles, place


class Archives(NamedTuple):
    """`contents`: broadcast zips, one for each of `names`, which are made from the contents.
    `files`: further files of the program.
    """

    names: tuple[str, ...]
    contents: Any
    files: WorkerFiles = WorkerFiles()


class Appended:
    """`AccumulatorParam` of lists: each task's list is appended."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # ruff: ignore[invalid-function-name]
        value1.extend(value2)
        return value1


class _Installed(NamedTuple):
    """State of a worker. `folder`: its own folder. `paths`: importable. `directory`: where
    functions work; None: anywhere. `missing`: finders that explain which packages are not there.
    """

    names: tuple[str, ...]
    files: WorkerFiles
    folder: str
    paths: tuple[str, ...]
    directory: str | None
    missing: tuple[Any, ...]


def import_shipped(archives: Archives, module: str) -> Any:
    """Import a module from these archives."""
    import importlib

    found = _installed()
    if found is None or (found.names, found.files) != (archives.names, archives.files):
        _remove(found)
        sys.__dict__["_penstock_installed"] = install(archives)
    return importlib.import_module(module)


@contextlib.contextmanager
def at_work() -> Generator[None]:
    """Work in the directory with the program's archives, if it has any. A worker has one task at a time."""
    found = _installed()
    if found is None or found.directory is None:
        yield
        return
    before = os.getcwd()
    os.chdir(found.directory)
    try:
        yield
    finally:
        os.chdir(before)


def _installed() -> Any:
    return sys.__dict__.get("_penstock_installed")


def _remove(installed: Any) -> None:
    """Remove Penstock and the former job's modules, which may be other versions of the same modules."""
    import shutil

    paths = () if installed is None else installed.paths
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None) or ""
        if name.split(".")[0] == "penstock" or origin.startswith(tuple(paths)):
            del sys.modules[name]
    sys.path[:] = [path for path in sys.path if path not in paths]
    missing = () if installed is None else installed.missing
    sys.meta_path[:] = [one for one in sys.meta_path if one not in missing]
    if installed is not None:
        shutil.rmtree(installed.folder, ignore_errors=True)


def install(archives: Archives) -> _Installed:
    """Put the archives on the import path, in a folder that is removed with the application."""
    import importlib
    import tempfile

    from pyspark import SparkFiles

    # On executors, getRootDirectory returns ".".
    root = os.path.abspath(SparkFiles.getRootDirectory())
    folder = tempfile.mkdtemp(prefix=f"penstock-{os.getpid()}-", dir=root)
    before = list(sys.path)
    directory = place(archives.files, root, folder)
    penstock, *programs = zip(archives.names, archives.contents.value, strict=True)
    path = os.path.join(folder, f"{penstock[0]}.zip")
    # It is this user's alone, as its folder is.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        target.write(penstock[1])
    sys.path.insert(0, path)
    importlib.invalidate_caches()
    # Unpacked, since programs look for data files next to their modules, and for packages without
    # `__init__`, which Python does not find in a zip that names no folders.
    unpacking = importlib.import_module("penstock.engine.hosting.shipping.module_archive")
    for name, content in programs:
        place_of_program = os.path.join(folder, name)
        os.mkdir(place_of_program, mode=0o700)
        unpacking.unpack(content, place_of_program)
        sys.path.insert(0, place_of_program)
    importlib.invalidate_caches()
    paths = tuple(path for path in sys.path if path not in before)
    telling = importlib.import_module("penstock.engine.hosting.shipping.missing_packages")
    missing = tuple(telling.install(archives.contents.value[1:]))  # Penstock's own comes first.
    return _Installed(archives.names, archives.files, folder, paths, directory, missing)
