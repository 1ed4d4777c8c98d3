"""Whether a function only reads attributes of its record. Such a function may be given a named tuple in place of a Row.

The function is not changed, so it may call, loop and fail as it likes. Each instruction that loads the record has to be followed by one
that reads a field. Does not know trees.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType
from typing import Final

from penstock.model.row import ROW_ATTRIBUTES
from penstock.runtime.row_functions.refusals import Refused

_SEES_VARIABLES: Final = frozenset({
    *("locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "globals"),
    *("set_trace", "breakpoint", "super"),
})
_LOADS: Final = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_LOAD_FAST"})
_STORES: Final = frozenset({"STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR"})
_STORES_AND_MORE: Final = frozenset({"STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"})


def fields_read(code: CodeType, place: int) -> frozenset[str]:
    """The attributes that are read of the argument at this place. Raises: Refused: it is used for something else too, or not at all."""
    _check(code, place)
    record = code.co_varnames[place]
    steps = [step for step in dis.get_instructions(code) if step.opname != "NOP"]
    read = set()
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if not _loads(step, record):
            continue
        is_field = following is not None and following.opname == "LOAD_ATTR"
        if following is None or not is_field or following.argrepr.endswith("NULL|self"):
            raise Refused("it uses the record itself, not only its fields")
        if following.argval in ROW_ATTRIBUTES:
            raise Refused(f"it uses {following.argval!r} of the record")
        read.add(following.argval)
    if not read:
        raise Refused("it reads no attribute of the record")
    return frozenset(read)


def _check(code: CodeType, place: int) -> None:
    if place >= code.co_argcount:
        raise Refused("it takes no record")
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Refused("it is a coroutine")
    if code.co_varnames[place] in code.co_cellvars:
        raise Refused("an inner function uses the record")
    seen = _SEES_VARIABLES & set(code.co_names)
    if seen:
        raise Refused(f"it calls {min(seen)}")


def _loads(step: dis.Instruction, record: str) -> bool:
    """Whether the step loads the record, as the last of what it loads. Raises: Refused: it does something else with it."""
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    if step.opname in _STORES and record in names:
        raise Refused("it changes the variable of the record")
    if step.opname in _STORES_AND_MORE:
        if names[0] == record or (step.opname == "STORE_FAST_STORE_FAST" and record in names):
            raise Refused("it changes the variable of the record")
        return bool(names[-1] == record)
    if step.opname not in _LOADS or record not in names:
        return False
    if record in names[:-1]:
        raise Refused("it uses the record itself, not only its fields")
    return True
