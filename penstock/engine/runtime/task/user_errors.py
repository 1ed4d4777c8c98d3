"""A user's error as its author can read it: the error in one line, the user's frames, then operator, record and line.

Source: Flink ExceptionInChainedOperatorException; differs: it is text, because nobody unpickles exceptions.
"""

from __future__ import annotations

from penstock.engine.model.errors import NOT_OF_FUNCTIONS, CancelSignal, UserCodeError, may_recover
from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.texts.error_text import text_for_user, traceback_of
from penstock.engine.runtime.operator import Operator
from penstock.engine.runtime.records.dead_letters import take_note

PASSED_ON = (*NOT_OF_FUNCTIONS, CancelSignal)
"""What is not a user function's error, or is located already. Everything else is located, also what is no Exception, such as
KeyboardInterrupt: only a cancel of ours ends a function from outside. A UserError from Penstock that a function met is located like
any other error.
"""


def user_code_error(
    spec: ChainedOperator, operator: Operator | None, error: BaseException
) -> UserCodeError:
    """The error first, then the operator, the record, and the line that built the operator."""
    lines = [text_for_user(error), f"  in operator: {spec.name}"]
    noted = take_note(error)
    lines += noted
    record = None if noted or operator is None else operator.failing_record()
    if record is not None:
        lines.append(f"  at record:   {record}")
    if spec.defined_at:
        lines.append(f"  built at:    {spec.defined_at}")
    made = UserCodeError("\n".join(lines))
    made.frames = traceback_of(error)
    made.is_recoverable = may_recover(error)
    return made
