"""Why a function does not run as columns, in words for its author."""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Final

_REFUSED_FLAGS: Final = {
    inspect.CO_GENERATOR: "it is a generator",
    inspect.CO_COROUTINE: "it is a coroutine",
    inspect.CO_ASYNC_GENERATOR: "it is a generator",
    inspect.CO_VARARGS: "it takes any number of arguments",
    inspect.CO_VARKEYWORDS: "it takes any number of arguments",
}
_BECAUSE: Final = {
    "GET_ITER": "it has a loop or a comprehension",
    "MAKE_FUNCTION": "it makes a function or has a comprehension",
    "LOAD_COMMON_CONSTANT": "it makes a function or has a comprehension",
    "LOAD_CLOSURE": "an inner function uses its variables",
    "MAKE_CELL": "an inner function uses its variables",
    "STORE_ATTR": "it changes an object",
    "STORE_SUBSCR": "it changes an object",
    "DELETE_SUBSCR": "it changes an object",
    "STORE_GLOBAL": "it changes a global variable",
    "STORE_DEREF": "it changes a variable of an outer function",
    "RAISE_VARARGS": "it raises an error itself",
    "LOAD_ASSERTION_ERROR": "it has an assert",
    "IMPORT_NAME": "it imports a module",
    "BUILD_MAP": "it makes a dict",
    "BUILD_CONST_KEY_MAP": "it makes a dict",
    "BUILD_SET": "it makes a set",
    "CALL_FUNCTION_EX": "it calls with * or **",
    "BEFORE_WITH": "it has a with statement",
}


class Refused(Exception):
    """Why the function runs as it is written."""


def because(instruction: str) -> str:
    """What a function does that has an instruction which is not read."""
    return _BECAUSE.get(instruction, f"it has the instruction {instruction}")


def check_shape(code: CodeType) -> None:
    """Raises: Refused: the function is of a kind that is not read."""
    for flag, because in _REFUSED_FLAGS.items():
        if code.co_flags & flag:
            raise Refused(because)
    if code.co_kwonlyargcount:
        raise Refused("it has arguments that are only given by name")
    if getattr(code, "co_exceptiontable", b""):
        raise Refused("it has a try or with statement, or a comprehension")
