"""What an operator gets when it is opened reaches every kind of operator."""

import ast
import inspect
import pkgutil
import textwrap
from importlib import import_module

import pytest

from penstock.engine import runtime
from penstock.engine.runtime.operator import Operator


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
