"""The interpreter that a program wants, and whether it is the program's own."""

import os
import sys

import pytest

from penstock.engine.hosting.shipping.interpreter import executable_of, is_our_own
from penstock.engine.model.config import Settings


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
