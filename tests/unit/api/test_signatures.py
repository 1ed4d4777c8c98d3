"""Every member that exists here takes PyFlink 2.3's parameters, by its names and in its order.

`pyflink_signatures.txt`: module (with our root), class, member and parameters, as PyFlink's
documentation gives them; members that take something of our own besides have it behind PyFlink's.
"""

import importlib
import inspect
import re
from pathlib import Path

import pytest

import penstock.common
import penstock.datastream

TABLE = Path(__file__).with_name("pyflink_signatures.txt").read_text(encoding="utf-8").splitlines()
MODULES = sorted({line.split()[0] for line in TABLE})


@pytest.mark.parametrize("module_name", MODULES)
def test_members_take_pyflinks_parameters(module_name):
    module = importlib.import_module(module_name)
    wrong = []
    for line in TABLE:
        if not line.startswith(module_name + " "):
            continue
        _, class_name, member, parameters = re.fullmatch(
            r"(\S+) (\S+) (\w+)\((.*)\)", line
        ).groups()
        owner = module
        for part in class_name.split("."):
            owner = getattr(owner, part)
        ours = [p for p in inspect.signature(getattr(owner, member)).parameters if p != "self"]
        wanted = parameters.split(", ") if parameters else []
        if ours[: len(wanted)] != wanted:
            wrong.append((class_name, member, wanted, ours))
    assert wrong == []


def test_the_table_is_not_empty():
    assert len(TABLE) > 600


@pytest.mark.parametrize("package", [penstock.common, penstock.datastream])
def test_everything_in_all_is_there(package):
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert len(set(package.__all__)) == len(package.__all__)
