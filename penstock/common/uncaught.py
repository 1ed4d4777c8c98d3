"""How an error that ends the program is shown: with the program's frames and without Penstock's.

Python's own hook is replaced only if nobody else has replaced it. IPython asks the error itself. It makes the lines the output of the
cell's error, which notebooks and the tools that run them know from other output.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final

from penstock.model.error_text import frames_of_user
from penstock.model.errors import PenstockError

_OF_IPYTHON: Final = "_render_traceback_"
"""The method of an error by which IPython gets its traceback as lines."""


class _Shown:
    is_full = False


def show_errors(*, is_full: bool) -> None:
    """Show PenstockErrors that nobody catches without Penstock's frames, unless `is_full`.

    May be called again; the last call counts.
    """
    _Shown.is_full = is_full
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if not is_full:
        setattr(PenstockError, _OF_IPYTHON, _lines_for_cell)
    elif hasattr(PenstockError, _OF_IPYTHON):
        delattr(PenstockError, _OF_IPYTHON)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if _Shown.is_full or not isinstance(error, PenstockError) or sys.stderr is None:
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write(frames_of_user(error) + "\n")


def _lines_for_cell(error: PenstockError) -> list[str]:
    """What a cell shows of an error that ends it."""
    return frames_of_user(error, without="IPython").split("\n")
