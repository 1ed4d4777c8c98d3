"""State that is restored under another declared type is the converted original: whatever the type, the backend, the kind of state, and
whether rows or files of databases were written. Source of the rules: docs/spec/state.md#changed-types.
"""

from __future__ import annotations

import pickle
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration
from penstock.engine.model.checkpoints import OperatorRestore
from penstock.engine.model.type_changes import type_change
from penstock.engine.model.types import Types
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.state.migration import StateOwner
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.state.snapshot_reader import read_operator
from tests.tools.runtime.changed_types import CHANGES
from tests.tools.runtime.keyed_backends import GROUPS, Average, Backends, through_bytes
from tests.tools.runtime.restoring import read as from_memory
from tests.tools.runtime.restoring import written_as_files

TTL = StateTtlConfig.new_builder(Duration.of_millis(10_000)).build()
TEXT = Types.STRING()


class Kept(Average):
    """An accumulator that is the value itself."""

    def create_accumulator(self):
        return None

    def add(self, value, accumulator):
        return value

    def get_result(self, accumulator):
        return accumulator


def last_of(first, second):
    return second


def declared(type_info, *, has_ttl):
    found = [
        ValueStateDescriptor("value", type_info),
        ListStateDescriptor("list", type_info),
        MapStateDescriptor("map", TEXT, type_info),
        ReducingStateDescriptor("reducing", last_of, type_info),
        AggregatingStateDescriptor("aggregating", Kept(), type_info),
    ]
    for descriptor in found if has_ttl else ():
        descriptor.enable_time_to_live(TTL)
    return found


def write(backend, descriptors, values):
    """`values`: of each key, one or more."""
    for key, items in values.items():
        backend.set_key(key)
        value, listed, mapped, reducing, aggregating = map(backend.of, descriptors)
        value.update(items[-1])
        listed.add_all(items)
        mapped.put_all({str(place): item for place, item in enumerate(items)})
        reducing.add(items[-1])
        aggregating.add(items[-1])


def read(backend, descriptors, keys):
    found = {}
    for key in keys:
        backend.set_key(key)
        value, listed, mapped, reducing, aggregating = map(backend.of, descriptors)
        found[key] = [
            value.value(), listed.get(), dict(mapped.items()), reducing.get(), aggregating.get(),
        ]  # fmt: skip
    return found


@given(CHANGES, st.data())
def test_a_changed_type_converts_each_value_as_the_rules_say(change, data):
    found = type_change(change.former, change.present, allows_double=True)
    value = data.draw(change.values)
    convert = found.convert or (lambda same: same)
    assert found.refusal == ""
    assert repr(convert(value)) == repr(change.expected(value))


def by_rows(backend, restored):
    """As a savepoint."""
    restored.restore(through_bytes(backend.snapshot()))


def by_files(backend, restored):
    """As an incremental checkpoint."""
    snapshot = OperatorSnapshot()
    snapshot.add("state", backend.snapshot())
    written = written_as_files(snapshot.freeze(plain_dumps), 1, 0)
    snapshot.close(is_kept=True)
    handles = OperatorRestore(written.keyed, databases=written.databases)
    found = read_operator(handles, from_memory, (0, GROUPS - 1), pickle.loads)
    restored.restore_databases(found.take_databases("state/"))


WAYS = [("heap", by_rows), ("rocks", by_rows), ("rocks", by_files)]


@pytest.mark.parametrize(("kind", "restore"), WAYS, ids=["heap", "rocks", "rocks-files"])
@settings(max_examples=25, deadline=None)
@given(change=CHANGES, has_ttl=st.booleans(), data=st.data())
def test_every_kind_of_state_is_migrated(kind, restore, change, has_ttl, data):
    one_or_more = st.lists(change.values, min_size=1, max_size=3)
    values = data.draw(st.dictionaries(st.integers(-3, 3), one_or_more, max_size=4))
    expected = {
        key: [
            (last := change.expected(items[-1])),
            [change.expected(item) for item in items],
            {str(place): change.expected(item) for place, item in enumerate(items)},
            last,
            last,
        ]
        for key, items in values.items()
    }
    with tempfile.TemporaryDirectory() as folder, closing(Backends(kind, Path(folder))) as made:
        backend = made.new()
        write(backend, declared(change.former, has_ttl=has_ttl), values)
        restored = made.new()
        restored.owner = StateOwner("op", "Op", allows_double=True)
        restore(backend, restored)
        present = declared(change.present, has_ttl=has_ttl)
        found = read(restored, present, values)
        assert repr(found) == repr(expected)
        again = made.new()
        restore(restored, again)
        assert repr(read(again, present, values)) == repr(expected)
