"""Which functions and methods of Python have a kernel. Does not know trees but as arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import numpy as np

from penstock.runtime.row_functions.kernels import choices, numbers, texts
from penstock.runtime.row_functions.kernels.values import Value
from penstock.runtime.row_functions.kernels.vectors import Of, Run, of_constant
from penstock.runtime.row_functions.refusals import Refused
from penstock.runtime.row_functions.trees import Kind, Node


class Steps(Protocol):
    """What a call needs of the kernel that it becomes part of."""

    def value(self, node: Node) -> Value: ...
    def step(self, of: Of, run: Run, *arguments: Value) -> Value: ...
    def truth(self, value: Value) -> Value: ...
    def as_ints(self, value: Value) -> Value: ...
    def as_floats(self, value: Value) -> Value: ...
    def text_of(self, value: Value) -> Value: ...


def call_of(steps: Steps, function: Any, arguments: Sequence[Node]) -> Value:
    """The steps of a call. Raises: Refused."""
    made = _CALLS.get(function) if function.__hash__ is not None else None
    if made is None:
        raise Refused(f"no kernel has {_name(function)}()")
    if function is isinstance:
        return _is_instance(steps, arguments)
    return made(steps, [steps.value(one) for one in arguments])


def method_of(name: str, arguments: Sequence[Node]) -> tuple[Run, Of]:
    """The step of a method of texts, and the class of what it gives. Raises: Refused."""
    if not arguments and name in texts.PLAIN:
        return texts.PLAIN[name], Of.TEXT
    if not arguments and name == "isdigit":
        return texts.is_of_digits, Of.BOOL
    constants = [_text(one) for one in arguments]
    if name in {"startswith", "endswith"} and len(constants) == 1 and constants[0] is not None:
        return (texts.starts if name == "startswith" else texts.ends)(constants[0]), Of.BOOL
    if name == "replace" and len(constants) == 2 and constants[0] and constants[1] is not None:
        return texts.replaced(constants[0], constants[1]), Of.TEXT
    raise Refused(f"no kernel has {name}() with these arguments")


def _text(node: Node) -> str | None:
    """A constant text; None: it is something else."""
    is_text = node.kind in {Kind.CONSTANT, Kind.KNOWN} and type(node.value) is str
    return node.value if is_text and of_constant(node.value) is not None else None


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def _is_instance(steps: Steps, arguments: Sequence[Node]) -> Value:
    value, kind = steps.value(arguments[0]), arguments[1]
    if value.of is Of.OTHER or kind.kind is not Kind.CODE or kind.value not in _CLASSES:
        raise Refused("no kernel has isinstance() of that")
    if value.of not in _CLASSES[kind.value]:
        return steps.step(Of.BOOL, choices.always(is_true=False), value)
    return steps.step(Of.BOOL, choices.is_not_none, value)


def _one(steps: Steps, values: Sequence[Value], by_kind: dict[Of, tuple[Of, Run]]) -> Value:
    """A function of one argument, by the argument's class."""
    if len(values) != 1 or values[0].of not in by_kind:
        raise Refused(f"no kernel has a function of {', '.join(one.of for one in values)}")
    of, run = by_kind[values[0].of]
    return steps.step(of, run, values[0])


def _of_one(by_kind: dict[Of, tuple[Of, Run]]) -> Callable[[Steps, Sequence[Value]], Value]:
    return lambda steps, values: _one(steps, values, by_kind)


def _text_of(steps: Steps, values: Sequence[Value]) -> Value:
    if len(values) != 1:
        raise Refused("no kernel has str() of these arguments")
    return steps.text_of(values[0])


def _truth(steps: Steps, values: Sequence[Value]) -> Value:
    if len(values) != 1:
        raise Refused("no kernel has bool() of these arguments")
    return steps.truth(values[0])


def _float(steps: Steps, values: Sequence[Value]) -> Value:
    if len(values) != 1 or values[0].of not in _NUMBERS:
        raise Refused("no kernel has float() of these arguments")
    return steps.step(Of.FLOAT, numbers.same, steps.as_floats(values[0]))


def _of_floats(of: Of, run: Run) -> Callable[[Steps, Sequence[Value]], Value]:
    """A function of `math` on one number."""

    def made(steps: Steps, values: Sequence[Value]) -> Value:
        if len(values) != 1 or values[0].of not in _NUMBERS:
            raise Refused("no kernel has a function of math of these arguments")
        return steps.step(of, run, steps.as_floats(values[0]))

    return made


def _extreme(run: Run) -> Callable[[Steps, Sequence[Value]], Value]:
    def made(steps: Steps, values: Sequence[Value]) -> Value:
        kinds = {one.of for one in values}
        if len(values) < 2 or len(kinds) > 1 or not kinds <= {Of.INT, Of.FLOAT}:
            raise Refused("no kernel has min() or max() of these arguments")
        found, *others = values
        for other in others:
            found = steps.step(values[0].of, run, found, other)
        return found

    return made


_NUMBERS: Final = frozenset({Of.INT, Of.FLOAT, Of.BOOL})
_CLASSES: Final[dict[Any, frozenset[Of]]] = {
    str: frozenset({Of.TEXT}),
    int: frozenset({Of.INT, Of.BOOL}),
    float: frozenset({Of.FLOAT}),
    bool: frozenset({Of.BOOL}),
}


def _whole(rounded: Callable[[Any], Any]) -> Callable[[Steps, Sequence[Value]], Value]:
    """A function that gives whole numbers, of ints themselves."""
    return _of_one({
        Of.INT: (Of.INT, numbers.same),
        Of.FLOAT: (Of.INT, numbers.to_int(rounded)),
        Of.BOOL: (Of.INT, numbers.int_of_bool),
    })


_CALLS: Final[dict[Any, Callable[[Steps, Sequence[Value]], Value]]] = {
    len: _of_one({Of.TEXT: (Of.INT, texts.length)}),
    str: _text_of,
    bool: _truth,
    float: _float,
    int: _whole(np.trunc),
    # The nearest even one of two that are equally near, as `rint`.
    round: _whole(np.rint),
    math.floor: _whole(np.floor),
    math.ceil: _whole(np.ceil),
    math.trunc: _whole(np.trunc),
    abs: _of_one({
        Of.INT: (Of.INT, numbers.absolute_int),
        Of.FLOAT: (Of.FLOAT, numbers.absolute_float),
        Of.BOOL: (Of.INT, numbers.int_of_bool),
    }),
    min: _extreme(numbers.smaller),
    max: _extreme(numbers.larger),
    math.sqrt: _of_floats(Of.FLOAT, numbers.square_root),
    math.fabs: _of_floats(Of.FLOAT, numbers.absolute_float),
    math.isnan: _of_floats(Of.BOOL, numbers.of_one(np.isnan)),
    math.isinf: _of_floats(Of.BOOL, numbers.of_one(np.isinf)),
    math.isfinite: _of_floats(Of.BOOL, numbers.of_one(np.isfinite)),
    isinstance: _truth,
}
