"""The interpreter that a program wants, and whether it is the program's own."""

import os
import re
import sys
import tomllib

import pyarrow as pa
import pytest

from penstock.engine.hosting.shipping.interpreter import (
    LEAST,
    check_here,
    executable_of,
    is_our_own,
    is_too_old,
    least_text,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ExternalError
from tests.tools.terminal import ROOT


def test_they_are_the_declared_ones():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "dependencies"
    ]
    of_tasks = dict(one.split(">=") for one in declared if re.match(r"pyarrow|numpy", one))
    assert {name: least_text(name) for name in LEAST} == of_tasks


@pytest.mark.parametrize(
    ("name", "version", "is_old"),
    [("pyarrow", "14.0.2", True), ("pyarrow", "15.0.0", False), ("pyarrow", "26.0.1.dev3", False),
     ("numpy", "1.25.9", True), ("numpy", "1.26.0", False), ("numpy", "2.0.0rc1", False),
     ("other", "0.1", False)],
)  # fmt: skip
def test_versions_are_compared_by_their_numbers(name, version, is_old):
    assert is_too_old(name, version) is is_old


def test_a_process_with_an_old_pyarrow_says_where_it_is(monkeypatch):
    check_here()
    monkeypatch.setattr(pa, "__version__", "14.0.2")
    with pytest.raises(ExternalError, match=r"pyarrow is 14\.0\.2 in .* on .*15 or newer"):
        check_here()


def test_an_interpreter_is_ours_only_with_its_environment(tmp_path, monkeypatch):
    folder = os.path.dirname(sys.executable)
    monkeypatch.setenv("PATH", folder)
    assert is_our_own(sys.executable)
    assert is_our_own(os.path.basename(sys.executable))
    (tmp_path / "python3").symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("PATH", f"{tmp_path}:{folder}")
    assert not is_our_own("python3")
    assert not is_our_own("none-of-that-name")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, None),
        ({"python.executable": "python"}, None),
        ({"python.executable": "/opt/py/bin/python"}, "/opt/py/bin/python"),
    ],
)
def test_flinks_default_stands_for_any_interpreter(options, wanted):
    assert executable_of(Settings(options)) == wanted
