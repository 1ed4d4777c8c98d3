"""Every member of PyFlink 2.3's DataStream API that exists here takes PyFlink's parameters: names, order, defaults.

`pyflink_signatures.txt`: module (with our root), class, and a member with its parameters, a property, or the names of an enum,
as PyFlink's documentation gives them. Left out are the constructors of Sink and Source, which wrap objects of Java there and
are contracts here. What takes something of our own besides has it behind PyFlink's; a default where PyFlink has none is more
than its programs ask for. Classes that are not here are those of `test_names`, and their bases.
"""

import importlib
import inspect
import re
from enum import Enum
from pathlib import Path

import pytest

import penstock.common
import penstock.datastream

TABLE = Path(__file__).with_name("pyflink_signatures.txt").read_text(encoding="utf-8").splitlines()
MODULES = sorted({line.split()[0] for line in TABLE})
VARIADIC = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def members(module_name):
    """Class, member and what is said of it, of the table's classes that are here."""
    module = importlib.import_module(module_name)
    for line in TABLE:
        where, class_name, rest = line.split(" ", 2)
        if where == module_name:
            name, *inner = class_name.split(".")
            try:
                owner = getattr(module, name)
            except (NotImplementedError, AttributeError):
                continue
            for part in inner:
                owner = getattr(owner, part)
            yield owner, class_name, rest


def shown(default):
    if isinstance(default, Enum):
        return default.name
    return default if isinstance(default, str) else repr(default)


def parameters(function):
    """Names, with stars, and defaults; None: there is none."""
    return [
        (
            VARIADIC.get(one.kind, "") + one.name,
            None if one.default is one.empty else shown(one.default),
        )
        for one in inspect.signature(function).parameters.values()
        if one.name not in {"self", "cls"}
    ]


def takes(ours, wanted):
    """Whether a call that suits PyFlink's parameters suits ours."""
    pairs = zip(ours, wanted, strict=False)
    same = all(
        own == name and (default is None or own_default == default)
        for (own, own_default), (name, default) in pairs
    )
    more = ours[len(wanted) :]
    return same and len(ours) >= len(wanted) and all(d is not None or "*" in n for n, d in more)


def differs(owner, rest):
    """What is wrong with a member, or None."""
    if rest.startswith("enum: "):
        names = list(owner.__members__)
        return None if names == rest[6:].split(", ") else names
    if rest.endswith(": property"):
        found = inspect.getattr_static(owner, rest.removesuffix(": property"), None)
        return None if isinstance(found, property) else found
    name, wanted = re.fullmatch(r"(\w+)\((.*)\)", rest).groups()
    if not hasattr(owner, name):
        return "missing"
    pairs = [one.partition("=") for one in wanted.split(", ")] if wanted else []
    ours = parameters(getattr(owner, name))
    expected = [(one, default if sign else None) for one, sign, default in pairs]
    return None if takes(ours, expected) else ours


@pytest.mark.parametrize("module_name", MODULES)
def test_members_take_pyflinks_parameters(module_name):
    wrong = [
        (class_name, rest, found)
        for owner, class_name, rest in members(module_name)
        if (found := differs(owner, rest)) is not None
    ]
    assert wrong == []


def test_the_table_is_whole_and_most_of_it_is_here():
    assert len(TABLE) > 1200
    assert sum(1 for module in MODULES for _ in members(module)) > 950


@pytest.mark.parametrize("package", [penstock.common, penstock.datastream])
def test_everything_in_all_is_there(package):
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert len(set(package.__all__)) == len(package.__all__)
