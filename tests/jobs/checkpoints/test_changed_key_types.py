"""A savepoint is restored by a program that declares another type for its keys: they are migrated, or the job is refused."""

from __future__ import annotations

import pytest

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction
from penstock.engine.model.errors import ConfigurationError
from tests.tools.programs.changing_program import (
    expected_counts,
    key_number,
    restored,
    savepoint_of,
)

BACKENDS = ["hashmap", "rocksdb"]


def by_number(convert, key_type=None):
    """Keys the stream by what `convert` makes of the number."""
    return lambda stream: stream.key_by(lambda value: convert(key_number(value)), key_type)


LONGS = by_number(int, Types.LONG())
REFUSED = {
    "STRING": by_number(str, Types.STRING()),
    "DOUBLE": by_number(float, Types.DOUBLE()),
    "TUPLE(LONG)": by_number(lambda number: (number,), Types.TUPLE([Types.LONG()])),
    "INT": by_number(int, Types.INT()),
    "undeclared (PICKLED_BYTE_ARRAY)": by_number(int),
}


WITHOUT_END = {"restart_strategy__fixed_delay__attempts": str(2**31 - 1)}
"""Restarts. What is refused in a task is refused for good: no restart makes it fit."""


@pytest.fixture(scope="module", params=BACKENDS)
def of_longs(request, tmp_path_factory):
    """The backend, and a savepoint with LONG keys that it wrote."""
    path = tmp_path_factory.mktemp(request.param)
    return request.param, savepoint_of(path, request.param, LONGS)


@pytest.mark.parametrize("name", REFUSED)
def test_keys_of_another_type_are_refused_and_both_types_are_named(of_longs, tmp_path, name):
    backend, savepoint = of_longs
    with pytest.raises(ConfigurationError) as caught:
        restored(tmp_path, backend, savepoint, REFUSED[name])
    text = str(caught.value)
    assert "operator 'Count' (uid 'count')" in text
    assert f"its keys were of type LONG, now they are of type {name}" in text


def by_key(lines, kind):
    found = {}
    for line in lines:
        key, _, count = line.rpartition(" ")
        found.setdefault(kind(key), []).append(int(count))
    return {key: sorted(counts) for key, counts in found.items()}


def test_the_same_keys_go_on(of_longs, tmp_path):
    backend, savepoint = of_longs
    assert by_key(restored(tmp_path, backend, savepoint, LONGS), int) == expected_counts()


def test_long_keys_become_double_if_the_job_allows_it(of_longs, tmp_path):
    backend, savepoint = of_longs
    settings = {"penstock__state-recovery__allow-int-to-double": "true"}
    lines = restored(tmp_path, backend, savepoint, REFUSED["DOUBLE"], **settings)
    assert by_key(lines, float) == expected_counts()


@pytest.mark.parametrize("backend", BACKENDS)
def test_int_keys_become_long_though_those_below_zero_belong_to_other_key_groups(tmp_path, backend):
    savepoint = savepoint_of(tmp_path, backend, by_number(int, Types.INT()))
    assert by_key(restored(tmp_path, backend, savepoint, LONGS), int) == expected_counts()


@pytest.mark.parametrize("backend", BACKENDS)
def test_undeclared_keys_that_are_declared_as_int_move_to_their_key_groups(tmp_path, backend):
    savepoint = savepoint_of(tmp_path, backend, by_number(int))
    ints = by_number(int, Types.INT())
    assert by_key(restored(tmp_path, backend, savepoint, ints), int) == expected_counts()


@pytest.mark.parametrize("backend", BACKENDS)
def test_undeclared_keys_may_be_declared_as_what_they_are_and_as_nothing_else(tmp_path, backend):
    savepoint = savepoint_of(tmp_path, backend, by_number(int))
    assert by_key(restored(tmp_path, backend, savepoint, LONGS), int) == expected_counts()
    with pytest.raises(Exception, match="written without a declared type.* DOUBLE") as caught:
        restored(tmp_path, backend, savepoint, REFUSED["DOUBLE"], **WITHOUT_END)
    assert "operator 'Count' (uid 'count')" in str(caught.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_undeclared_keys_of_another_class_are_refused_and_both_classes_are_named(tmp_path, backend):
    savepoint = savepoint_of(tmp_path, backend, by_number(int))
    for convert, named in ((str, "str"), (float, "float"), (lambda number: (number,), "tuple")):
        with pytest.raises(Exception, match="of class int, and .* now of class") as caught:
            restored(tmp_path, backend, savepoint, by_number(convert), **WITHOUT_END)
        assert f"now of class {named}, so no record would find its state" in str(caught.value)
        assert "operator 'Count' (uid 'count')" in str(caught.value)
    assert by_key(restored(tmp_path, backend, savepoint, by_number(int)), int) == expected_counts()


def test_undeclared_keys_of_the_classes_that_they_had_go_on(tmp_path):
    """Some are text and some are numbers, in every subtask."""

    def mixed(number):
        return str(number) if number % 3 else number

    savepoint = savepoint_of(tmp_path, BACKENDS[0], by_number(mixed))
    found = by_key(restored(tmp_path, BACKENDS[0], savepoint, by_number(mixed)), eval)
    assert found == {mixed(number): counts for number, counts in expected_counts().items()}


class Same(KeyedProcessFunction):
    """Passes on what it gets. It may have state, for it is keyed."""

    def process_element(self, value, ctx):
        yield value


def twice_keyed(stream):
    return LONGS(LONGS(stream).process(Same()).name("New").uid("new"))


def test_an_operator_that_starts_empty_while_others_find_their_state_is_told(
    of_longs, tmp_path, capsys, caplog
):
    backend, savepoint = of_longs
    lines = restored(tmp_path, backend, savepoint, twice_keyed)
    assert by_key(lines, int) == expected_counts()
    told = "operator 'New' (uid 'new') has keyed state"
    assert [told in line for line in capsys.readouterr().err.splitlines()].count(True) == 1
    assert [told in record.getMessage() for record in caplog.records].count(True) == 1


def test_nothing_is_told_when_all_find_their_state(of_longs, tmp_path, capsys):
    backend, savepoint = of_longs
    restored(tmp_path, backend, savepoint, LONGS)
    assert "has keyed state" not in capsys.readouterr().err
