"""How an error that ends the program is shown: with the program's frames and without Penstock's.

Python's own hook is replaced only if nobody else has replaced it; so is IPython's way to show these errors in a cell.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from penstock.model.error_text import frames_of_user
from penstock.model.errors import PenstockError


class _Shown:
    is_full = False


def show_errors(*, is_full: bool) -> None:
    """Show PenstockErrors that nobody catches without Penstock's frames, unless `is_full`.

    May be called again; the last call counts.
    """
    _Shown.is_full = is_full
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is not None and not shell.custom_exceptions:
        shell.set_custom_exc((PenstockError,), _show_in_cell)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if _Shown.is_full or not isinstance(error, PenstockError) or sys.stderr is None:
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write(frames_of_user(error) + "\n")


def _show_in_cell(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    if _Shown.is_full:
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return
    sys.stderr.write(frames_of_user(error, without="IPython") + "\n")
