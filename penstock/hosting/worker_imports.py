"""Penstock and a program's modules inside Spark's Python worker, from archives that a broadcast variable brought.

Shipped by value with what needs it, so that executors need not have Penstock. They stay imported in the worker, which Spark
reuses, until a job with other archives comes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any


def import_shipped(archives: Sequence[tuple[str, bytes]], module: str) -> Any:
    """The module. `archives`: (name, zip), names telling contents; of two with one module the last counts."""
    import importlib
    import os
    import sys
    import tempfile

    wanted = [name for name, _ in archives]
    state = sys.__dict__.setdefault("_penstock_archives", ([], None))
    if state[0] != wanted:
        for known in [name for name in sys.modules if name.split(".")[0] == "penstock"]:
            del sys.modules[known]
        if state[1] is not None:
            sys.path[:] = [path for path in sys.path if not path.startswith(state[1])]
        folder = tempfile.mkdtemp(prefix=f"penstock-{os.getpid()}-")
        for name, content in archives:
            path = os.path.join(folder, name + ".zip")
            with pathlib.Path(path).open("wb") as target:
                target.write(content)
            sys.path.insert(0, path)
        importlib.invalidate_caches()
        sys.__dict__["_penstock_archives"] = (wanted, folder)
    return importlib.import_module(module)


class Appended:
    """`AccumulatorParam` of lists: what each task adds comes behind what is there."""

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # ruff: ignore[invalid-function-name]
        value1.extend(value2)
        return value1
