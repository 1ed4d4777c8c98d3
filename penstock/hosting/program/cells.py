"""Which notebook cell is running. Knows IPython only by what it puts into every cell's reach, and imports nothing of it."""

from __future__ import annotations

import builtins
import sys
import threading
from typing import Any

from penstock.hosting.session_jobs import Cell


def running_cell() -> Cell | None:
    """The cell whose code calls this; None: no notebook, or another thread than the main one, such as a timer's: what runs there need
    not belong to the cell that runs now.
    """
    if threading.current_thread() is not threading.main_thread():
        return None
    get_shell = getattr(builtins, "get_ipython", None)
    shell: Any = get_shell() if get_shell is not None else None
    if shell is None:
        return None
    place = _place_in(getattr(shell, "user_ns", None))
    if place is None:
        return None
    # Front ends name the cell. Without that its code has a file name of its own, which stays the same until it is edited. A cell with
    # the same code, such as `%run $script`, has the same file name, so the script's is needed, too.
    header = getattr(shell, "parent_header", None) or {}
    name = (header.get("metadata") or {}).get("cellId")
    return Cell(str(name or place), getattr(shell, "execution_count", None))


def _place_in(namespace: object) -> str | None:
    """The file name of the outermost code that runs in the notebook's namespace, and those of the scripts that it runs."""
    place: str | None = None
    scripts: list[str] = []
    current: Any = sys._getframe(1)
    while current is not None:
        code = current.f_code
        if current.f_globals is namespace:
            place = "\n".join([code.co_filename, *reversed(scripts)])
        if code.co_name == "<module>":
            scripts.append(code.co_filename)
        current = current.f_back
    return place
