"""How an error that ends the program is shown: with the program's frames and without Penstock's.

So are Penstock's errors, and Python's own if Penstock has raised them about something that the program did. Python's own hook is
replaced only if nobody else has replaced it; after a cancelled job whichever hook is there is called first. IPython asks the error itself, or whoever has set a handler first. It makes the lines the
output of the cell's error, which notebooks and the tools that run them know from other output.
"""

from __future__ import annotations

import builtins
import linecache
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from penstock.engine.model.errors import JobCancelledError, PenstockError
from penstock.engine.model.own_places import is_ours_here
from penstock.engine.model.texts.error_text import frames_of_user

_OF_IPYTHON: Final = "_render_traceback_"
"""The method of an error by which IPython gets its traceback as lines."""
_REFUSALS: Final = (TypeError, ValueError, AssertionError, OverflowError, NotImplementedError)
"""Errors of Python by which Penstock refuses what a program gives it."""


class _Shown:
    is_full = False


def show_errors(*, is_full: bool) -> None:
    """Show the errors that nobody catches without Penstock's frames, unless `is_full`.

    May be called again; the last call counts.
    """
    _Shown.is_full = is_full
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show
    if not is_full:
        setattr(PenstockError, _OF_IPYTHON, _lines_for_cell)
    elif hasattr(PenstockError, _OF_IPYTHON):
        delattr(PenstockError, _OF_IPYTHON)
    get_shell = getattr(builtins, "get_ipython", None)
    shell: Any = get_shell() if get_shell is not None else None
    if getattr(shell, "custom_exceptions", None) == ():
        shell.set_custom_exc(_REFUSALS, _show_in_cell)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    is_ours = isinstance(error, PenstockError) or _refuses(error, trace)
    if _Shown.is_full or not is_ours or sys.stderr is None:
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write(frames_of_user(error) + "\n")


def end_well_if_cancelled() -> None:
    """Have a JobCancelledError that nobody catches end the program with status 0, whichever hook shows it.

    As Flink's program ends after a cancelled job: a cluster starts a program again that ends otherwise.
    """
    if not isinstance(sys.excepthook, _EndingWell):
        sys.excepthook = _EndingWell(sys.excepthook)


class _EndingWell:
    """The hook that was there, and then the exit status."""

    def __init__(self, show: Callable[..., object]) -> None:
        self._show = show

    def __call__(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        self._show(kind, error, trace)
        if isinstance(error, JobCancelledError) and not hasattr(sys, "ps1"):  # Not at a prompt.
            raise SystemExit(0)


def _show_in_cell(
    shell: Any,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
    tb_offset: int | None = None,
) -> None:
    """IPython's handler of errors of `_REFUSALS`."""
    if not _Shown.is_full and _refuses(error, trace):
        setattr(error, _OF_IPYTHON, lambda: _lines_for_cell(error))
    shell.showtraceback((kind, error, trace), tb_offset=tb_offset)


def _refuses(error: BaseException, trace: TracebackType | None) -> bool:
    """Whether Penstock raised this error itself. Others that come out of its code are mistakes in it, or come from functions of the program."""
    if trace is None or not isinstance(error, _REFUSALS):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    filename = trace.tb_frame.f_code.co_filename
    line = linecache.getline(filename, trace.tb_lineno)
    return is_ours_here(filename) and line.lstrip().startswith("raise ")


def _lines_for_cell(error: BaseException) -> list[str]:
    """What a cell shows of an error that ends it."""
    return frames_of_user(error, without="IPython").split("\n")
