"""A user's error as its author can read it: the traceback without Penstock's frames, then operator, record and line.

Source: Flink ExceptionInChainedOperatorException; differs: it is text, because nobody unpickles exceptions.
"""

from __future__ import annotations

import traceback
from typing import Final

from penstock.model.errors import EngineBug, ExternalError, UserCodeError
from penstock.model.graph.chain import ChainedOperator
from penstock.model.own_places import is_engine
from penstock.runtime.operator import Operator

PASSED_ON: Final = (UserCodeError, ExternalError, EngineBug)
"""Errors that are not a user function's, or that are located already. A UserError from Penstock that a function met is located like
any other error.
"""


def _user_traceback(error: BaseException) -> str:
    """Python's own format, causes first, without Penstock's frames (unless there are no others)."""
    whole = traceback.TracebackException.from_exception(error)
    if not _strip_engine(whole):
        whole = traceback.TracebackException.from_exception(error)
    return "".join(whole.format()).rstrip()


def _strip_engine(whole: traceback.TracebackException) -> bool:
    """Remove Penstock's frames from an error, its causes and its parts. Returns whether frames of the user are left."""
    is_any_left = False
    pending: list[traceback.TracebackException | None] = [whole]
    while pending:
        one = pending.pop()
        if one is None:
            continue
        frames = [frame for frame in one.stack if not is_engine(frame.filename)]
        one.stack = traceback.StackSummary.from_list(frames)
        is_any_left = is_any_left or bool(frames)
        pending += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return is_any_left


def user_code_error(
    spec: ChainedOperator, operator: Operator | None, error: BaseException
) -> UserCodeError:
    """The user's traceback first, then the operator, the record, and the line that built the operator."""
    text = _user_traceback(error)
    lines = [text, f"  in operator: {spec.name}"]
    record = None if operator is None else operator.failing_record()
    if record is not None:
        lines.append(f"  at record:   {record}")
    if spec.defined_at:
        lines.append(f"  built at:    {spec.defined_at}")
    return UserCodeError("\n".join(lines))
