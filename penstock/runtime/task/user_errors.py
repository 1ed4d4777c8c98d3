"""A user's error as its author reads it: the traceback without our frames, then operator, record and line.

Source: Flink ExceptionInChainedOperatorException; differs: text, for nobody unpickles exceptions.
"""

from __future__ import annotations

import traceback
from typing import Final

from penstock.model.errors import EngineBug, ExternalError, UserCodeError
from penstock.model.graph.chain import ChainedOperator
from penstock.runtime.operator import Operator

PASSED_ON: Final = (UserCodeError, ExternalError, EngineBug)
"""What is no user function's error, or has its place already. A UserError of ours that a function met gets its place as any other."""


def _user_traceback(error: BaseException) -> str:
    """Python's own form, causes first, without our frames (unless nothing else is there)."""
    whole = traceback.TracebackException.from_exception(error)
    if not _strip_engine(whole):
        whole = traceback.TracebackException.from_exception(error)
    return "".join(whole.format()).rstrip()


def _strip_engine(whole: traceback.TracebackException) -> bool:
    """Take our frames out of an error, its causes and its parts; whether the user's are left."""
    is_any_left = False
    pending: list[traceback.TracebackException | None] = [whole]
    while pending:
        one = pending.pop()
        if one is None:
            continue
        frames = [
            frame
            for frame in one.stack
            if "/penstock/runtime/" not in frame.filename.replace("\\", "/")
        ]
        one.stack = traceback.StackSummary.from_list(frames)
        is_any_left = is_any_left or bool(frames)
        pending += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return is_any_left


def user_code_error(
    spec: ChainedOperator, operator: Operator | None, error: BaseException
) -> UserCodeError:
    """The user's traceback first, then where: operator, record, and the line that built it."""
    text = _user_traceback(error)
    lines = [text, f"  in operator: {spec.name}"]
    record = None if operator is None else operator.failing_record()
    if record is not None:
        lines.append(f"  at record:   {record}")
    if spec.defined_at:
        lines.append(f"  built at:    {spec.defined_at}")
    return UserCodeError("\n".join(lines))
