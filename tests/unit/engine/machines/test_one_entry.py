"""A machine that takes events changes in `step` only: everything else that others may call is a view."""

import ast
import importlib
import inspect
import pkgutil
import textwrap

import pytest

from penstock.engine import machines
from penstock.ops.autoscaler import rules

ENTRY = "step"


def machines_that_step():
    for package in (machines, rules):
        yield from machines_in(package)


def machines_in(package):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind.__module__ == module.name and inspect.isfunction(vars(kind).get(ENTRY)):
                yield kind


KINDS = sorted(machines_that_step(), key=lambda kind: kind.__name__)


def methods_of(kind):
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    return {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}


def reached(name, methods):
    """The method, and those of the class that it calls."""
    found, waiting = set(), [name]
    while waiting:
        one = waiting.pop()
        if one in methods and one not in found:
            found.add(one)
            nodes = ast.walk(methods[one])
            waiting += [node.attr for node in nodes if isinstance(node, ast.Attribute)]
    return [methods[one] for one in found]


def changes(method):
    """What a method sets. A list of its own it may change."""
    for node in ast.walk(method):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            yield from (ast.unparse(one) for one in targets if isinstance(one, ast.Attribute))


def test_the_machines_of_a_job_of_its_cluster_and_of_its_session_are_among_them():
    of_job = {"BatchMaster", "JobMaster", "AdaptiveMaster"}
    expected = {*of_job, "ResourceManager", "TaskExecutor", "Dispatcher", "Autoscaler"}
    assert expected <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_step_changes_a_machine(kind):
    methods = methods_of(kind)
    public = [name for name in methods if not name.startswith("_") and name != ENTRY]
    found = {
        name: [one for method in reached(name, methods) for one in changes(method)]
        for name in public
    }
    assert {name: one for name, one in found.items() if one} == {}


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_step_gives_effects(kind):
    methods = methods_of(kind)
    giving = [
        name
        for name, method in methods.items()
        if not name.startswith("_") and method.returns and "Effect" in ast.unparse(method.returns)
    ]
    assert giving == [ENTRY]
