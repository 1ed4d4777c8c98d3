"""Which interpreters' bytecode is read, and who sees calls."""

import sys

import pytest

from penstock.engine.runtime.row_functions.known_code import is_watched, may_read, steps_of


@pytest.mark.parametrize("version", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_known_versions_are_read(version):
    assert may_read(version, "cpython")


@pytest.mark.parametrize(
    ("version", "implementation"),
    [((3, 10), "cpython"), ((3, 15), "cpython"), ((4, 0), "cpython"), ((3, 12), "pypy")],
)
def test_other_interpreters_are_not_read(version, implementation):
    assert not may_read(version, implementation)


def test_an_instruction_has_one_name_on_each_version():
    names = [step.opname for step in steps_of((lambda one, two: one[2] + two).__code__)]
    assert names == [
        *("RESUME", "LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR"),
        *("LOAD_FAST", "BINARY_OP", "RETURN_VALUE"),
    ]


def test_two_variables_are_loaded_at_once_from_some_version_on_under_one_name():
    names = {step.opname for step in steps_of((lambda one, two: one + two).__code__)}
    assert {one for one in names if "FAST" in one} <= {"LOAD_FAST", "LOAD_FAST_LOAD_FAST"}


def test_a_tracer_and_a_profiler_are_seen():
    former, profile = sys.gettrace(), sys.getprofile()
    try:
        sys.settrace(None)
        sys.setprofile(None)
        assert not is_watched()
        sys.settrace(lambda *_: None)
        assert is_watched()
        sys.settrace(None)
        sys.setprofile(lambda *_: None)
        assert is_watched()
    finally:
        sys.setprofile(profile)
        sys.settrace(former)
