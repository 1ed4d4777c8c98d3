"""What an operator gets when it is opened reaches every kind of operator."""

import ast
import inspect
import pkgutil
import textwrap
from importlib import import_module

import pytest

from penstock import runtime
from penstock.common import Duration
from penstock.runtime.context import UserFunction
from penstock.runtime.keys import KeySelection, computed
from penstock.runtime.operator import Operator
from penstock.runtime.operators import KeyedMapOperator, KeyedProcessOperator
from penstock.runtime.operators.windowed.functions import ListContents
from penstock.runtime.operators.windowed.window_operator import window_operator
from penstock.runtime.row_functions.inlining import inlined
from penstock.runtime.windowing.assigners import TumblingEventTimeWindows
from tests.tools.runtime.operator_harness import OperatorHarness


def that_open():
    """The classes of operators that have an `open` of their own."""
    for module in pkgutil.walk_packages(runtime.__path__, f"{runtime.__name__}."):
        for _, kind in inspect.getmembers(import_module(module.name), inspect.isclass):
            is_own = kind.__module__ == module.name and "open" in vars(kind)
            if is_own and issubclass(kind, Operator) and kind is not Operator:
                yield kind


@pytest.mark.parametrize("kind", sorted(that_open(), key=lambda kind: kind.__name__))
def test_an_operator_that_is_opened_opens_its_base(kind):
    """Where it does not, it never gets what takes poison records."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(vars(kind)["open"])))
    calls = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert "super().open(context)" in calls


def keys():
    return KeySelection(lambda pair: pair[1])


MAKE = {
    "map": lambda: KeyedMapOperator(UserFunction(repr), keys()),
    "process": lambda: KeyedProcessOperator(UserFunction(lambda value, _context: [value]), keys()),
    "window": lambda: window_operator(
        keys=keys(),
        assigner=TumblingEventTimeWindows.of(Duration.of_millis(10)),
        contents=ListContents(),
    ),
}


@pytest.mark.parametrize("name", MAKE)
def test_each_keyed_operator_says_that_a_key_was_computed_wrongly(name, monkeypatch):
    wrong = inlined(lambda pair: pair[1] + 0.0)
    monkeypatch.setattr(computed, "inlined", lambda _call: wrong)
    lines = []
    harness = OperatorHarness(MAKE[name](), complain=lines.append)
    harness.feed([(f"word{number}", number) for number in range(3)], [1, 2, 3])
    (line,) = lines
    assert line.startswith("key_by: for the record ('word0', 0) the key selector returns 0, but")
