"""The interpreters whose bytecode is known. On every other one a function runs as it is written.

A new opcode would be refused, but an old one with a new meaning would be misread without an error. Does not know functions.
Source: none; the manual of `dis` says that bytecode may change between versions.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import Any, Final

KNOWN_VERSIONS: Final = frozenset({(3, 11), (3, 12), (3, 13), (3, 14)})
"""Each of them has run the tests, also those with random functions."""
_DEBUGGER, _COVERAGE, _PROFILER = 0, 1, 2
_OLDER_NAMES: Final = {
    ("LOAD_FAST_BORROW", None): "LOAD_FAST",
    ("LOAD_FAST_BORROW_LOAD_FAST_BORROW", None): "LOAD_FAST_LOAD_FAST",
    ("LOAD_SMALL_INT", None): "LOAD_CONST",
    ("BINARY_OP", "[]"): "BINARY_SUBSCR",
    ("LOAD_COMMON_CONSTANT", "AssertionError"): "LOAD_ASSERTION_ERROR",
}
"""By instruction, and by what it is given where that matters: the instruction of Python 3.13 that does the same."""


def may_read(version: tuple[int, int], implementation: str) -> bool:
    """Whether the bytecode of this interpreter is known."""
    return implementation == "cpython" and version in KNOWN_VERSIONS


READS_BYTECODE: Final = may_read(sys.version_info[:2], sys.implementation.name)
_HAS_METHOD_BIT: Final = "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] > 255
"""Whether LOAD_ATTR tells by the lowest bit of its argument that a method is loaded. An opcode above 255 is a pseudo one of the compiler."""


def steps_of(code: CodeType) -> list[dis.Instruction]:
    """The instructions of a function. Those that Python 3.14 has in place of others have the older names."""
    return [_renamed(step) for step in dis.get_instructions(code)]


def _renamed(step: dis.Instruction) -> dis.Instruction:
    name = _OLDER_NAMES.get((step.opname, None)) or _OLDER_NAMES.get((step.opname, step.argrepr))
    return step if name is None else step._replace(opname=name)


def loads_method(step: dis.Instruction) -> bool:
    """Whether the step loads a method in order to call it."""
    return step.opname == "LOAD_METHOD" or (_HAS_METHOD_BIT and bool((step.arg or 0) & 1))


def is_watched() -> bool:
    """Whether a debugger, a profiler or a coverage tool sees this thread's calls. It would not see a function whose body runs elsewhere."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return True
    monitoring: Any = getattr(sys, "monitoring", None)
    return monitoring is not None and any(
        monitoring.get_tool(tool) for tool in (_DEBUGGER, _COVERAGE, _PROFILER)
    )
