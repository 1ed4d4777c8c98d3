"""Somebody has put a pickle that runs code into the file of a state without users' objects: the job is refused, and nothing is run."""

from __future__ import annotations

import pickle

import pytest

from penstock.common import Types
from penstock.datastream.state import ValueStateDescriptor
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.runtime.state import column_format
from tests.tools.programs.changing_program import Count, key_number, restored, savepoint_of

RAN: list = []


def plant(text):
    RAN.append(text)
    return [frozenset()]


class Planted:
    def __reduce__(self):
        return plant, ("it ran",)


def by_key(stream):
    return stream.key_by(key_number, Types.LONG())


def counting():
    """Counts with sets, which no column of Arrow holds."""
    return Count(ValueStateDescriptor("count"), frozenset({0}), lambda seen: seen | {len(seen)})


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_a_planted_pickle_is_refused_and_does_not_run(backend, tmp_path, monkeypatch):
    evil = pickle.dumps(Planted())
    with monkeypatch.context() as attacker:
        attacker.setattr(column_format, "dumps_plain", lambda value: evil)
        savepoint = savepoint_of(tmp_path, backend, by_key, counting())
    settings = {"restart-strategy__type": "none"}
    with pytest.raises(
        JobExecutionError, match="test_planted_savepoint.plant: the file was altered"
    ):
        restored(tmp_path, backend, savepoint, by_key, counting(), **settings)
    assert RAN == []


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_the_same_state_is_restored_where_nobody_planted_anything(backend, tmp_path):
    savepoint = savepoint_of(tmp_path, backend, by_key, counting())
    assert restored(tmp_path, backend, savepoint, by_key, counting())
