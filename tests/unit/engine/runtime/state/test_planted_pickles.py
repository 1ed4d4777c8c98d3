"""Who alters the file of a state without users' objects, so that reading it would run code, is refused: it would
run as whoever restores it.
"""

from __future__ import annotations

import pickle
from contextlib import closing

import pytest

from penstock.engine.model.checkpoints import ListStateShare, OperatorRestore, RedistributionMode
from penstock.engine.model.errors import UserError
from penstock.engine.model.types import Types
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state import column_format
from penstock.engine.runtime.state.descriptors import ListStateDescriptor, ValueStateDescriptor
from penstock.engine.runtime.state.snapshot import ListPart, OperatorSnapshot
from penstock.engine.runtime.state.snapshot_reader import read_operator
from tests.tools.runtime.keyed_backends import GROUPS, KINDS, Backends
from tests.tools.runtime.restoring import read, written_state

ALL = (0, GROUPS - 1)
RAN: list = []


def plant(text):
    RAN.append(text)
    return []


class Planted:
    def __reduce__(self):
        return plant, ("it ran",)


def no_pickle(data):
    raise AssertionError("state without users' objects was given to the full unpickler")


def snapshot_of(made, values):
    backend = made.new()
    backend.set_key(1)
    listed, value = (
        backend.get_list_state(ListStateDescriptor("list", Types.LONG())),
        backend.get_state(ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY())),
    )
    listed.add_all([1, 2])
    value.update(values)
    snapshot = OperatorSnapshot()
    snapshot.add("state", backend.snapshot())
    snapshot.lists["broadcast/rules"] = ListPart(RedistributionMode.BROADCAST, [{"a": 1}])
    return snapshot.freeze(plain_dumps)


def handles_of(state):
    lists = tuple(ListStateShare(one, 0, len(one.offsets) - 1) for one in state.lists)
    return OperatorRestore(state.keyed, lists)


class OfAUser:
    """A class of a user."""


@pytest.mark.parametrize("kind", KINDS)
def test_state_of_plain_values_is_restored_without_the_full_unpickler(kind, tmp_path):
    with closing(Backends(kind, tmp_path)) as made:
        snapshot = snapshot_of(made, {"x": [1, {2}]})
        state = written_state(snapshot)
        snapshot.close(is_kept=True)
    found = read_operator(handles_of(state), read, ALL, no_pickle)
    assert found.keyed["state/list"].columns[1] == [[1, 2]]
    assert found.keyed["state/value"].columns[1] == [{"x": [1, {2}]}]
    assert found.elements("broadcast/rules") == [{"a": 1}]


@pytest.mark.parametrize("kind", KINDS)
def test_only_state_with_objects_of_users_is_given_to_the_full_unpickler(kind, tmp_path):
    given = []

    def loads(data):
        given.append(pickle.loads(data))
        return given[-1]

    with closing(Backends(kind, tmp_path)) as made:
        snapshot = snapshot_of(made, OfAUser())
        state = written_state(snapshot)
        snapshot.close(is_kept=True)
    read_operator(handles_of(state), read, ALL, loads)
    assert [type(one[0]) for one in given] == [OfAUser]


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_pickle_is_refused_and_does_not_run(kind, tmp_path, monkeypatch):
    evil = pickle.dumps([Planted()])
    with closing(Backends(kind, tmp_path)) as made:
        snapshot = snapshot_of(made, {"x": {1}})
        monkeypatch.setattr(column_format, "dumps_plain", lambda value: evil)
        state = written_state(snapshot)
        snapshot.close(is_kept=True)
    with pytest.raises(UserError, match="test_planted_pickles.plant: the file was altered"):
        read_operator(handles_of(state), read, ALL, pickle.loads)
    assert RAN == []
    pickle.loads(evil)
    assert RAN.pop() == "it ran", "the plant works"


def test_a_planted_element_of_a_list_state_is_refused_and_does_not_run():
    snapshot = OperatorSnapshot()
    snapshot.lists["broadcast/rules"] = ListPart(RedistributionMode.BROADCAST, [])
    snapshot.freeze(plain_dumps).lists["broadcast/rules"].elements.append(
        b"B" + pickle.dumps(Planted())
    )
    with pytest.raises(UserError, match="test_planted_pickles.plant: the file was altered"):
        read_operator(handles_of(written_state(snapshot)), read, ALL, pickle.loads)
    assert RAN == []
