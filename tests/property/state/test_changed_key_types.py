"""Keyed state that is restored under another key type: each subtask has the keys of its key groups as they are now, each with its value,
whether rows or files of databases were written. Source: docs/spec/state.md#changed-types, #rescaling-keyed-state.
"""

from __future__ import annotations

import pickle
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.engine.model.checkpoints import OperatorRestore
from penstock.engine.model.errors import UserError
from penstock.engine.model.key_types import KeyMigration, KeyType, judge_keys
from penstock.engine.model.types import Types
from penstock.engine.runtime.keys import key_group_range
from penstock.engine.runtime.keys.hashing import (
    canonical_bytes,
    is_int32_type,
    key_group,
    state_key,
)
from penstock.engine.runtime.operators.keyed import restore_backend
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.descriptors import ValueStateDescriptor
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.state.snapshot_reader import read_operator
from tests.tools.runtime.changed_types import CHANGES
from tests.tools.runtime.keyed_backends import GROUPS, Backends
from tests.tools.runtime.restoring import PIECES, read, written_as_files, written_state

COUNTED = ValueStateDescriptor("n", Types.LONG())
WAYS = [
    ("heap", written_state),
    ("rocks", written_state),
    ("rocks", lambda s: written_as_files(s, 1, 0)),
]


def snapshot_of(made, key_type, keys):
    backend = made.new(is_int32=is_int32_type(key_type))
    for number, key in enumerate(keys):
        backend.set_key(key)
        backend.get_state(COUNTED).update(number)
        backend.timer_queue("timers").add(number, state_key(key), None) if number == 0 else None
    snapshot = OperatorSnapshot()
    snapshot.add("state", backend.snapshot())
    return snapshot.freeze(plain_dumps)


def migration_of(former, present) -> KeyMigration:
    verdict = judge_keys(
        KeyType.of(former, is_int32=is_int32_type(former)),
        KeyType.of(present, is_int32=is_int32_type(present)),
        allows_double=True,
    )
    assert verdict.refusal == ""
    return verdict.migration


def restored(made, state, migration, parallelism):
    """The backend of each subtask."""
    found = []
    for subtask in range(parallelism):
        groups = key_group_range(GROUPS, parallelism, subtask)
        handles = OperatorRestore(state.keyed, databases=state.databases, keys=migration)
        snapshot = read_operator(handles, read, groups, pickle.loads, PIECES[made.kind])
        backend = made.new(is_int32=is_int32_type(migration.present.type_info))
        restore_backend(backend, snapshot, "state")
        found.append(backend)
    return found


def rows_of(backend):
    """(encoded key, value) of all rows of the state, and the encoded keys of all timers."""
    state = OperatorSnapshot()
    backend.get_state(COUNTED)
    state.add("", backend.snapshot())
    written = written_state(state.freeze(plain_dumps))
    state.close(is_kept=True)
    whole = read_operator(OperatorRestore(written.keyed), read, (0, GROUPS - 1), pickle.loads).keyed
    part, timers = whole.get("/n"), whole.get("/timers")
    keys = [] if part is None else [canonical_bytes(getattr(key, "key", key)) for key in part.keys]
    timed = (
        [] if timers is None else [canonical_bytes(getattr(key, "key", key)) for key in timers.keys]
    )
    return dict(zip(keys, part.columns[1], strict=True)) if keys else {}, timed


@pytest.mark.parametrize(("kind", "written"), WAYS, ids=["heap", "rocks", "rocks-files"])
@settings(max_examples=20, deadline=None)
@given(change=CHANGES, parallelism=st.integers(1, 3), data=st.data())
def test_every_key_is_found_where_its_records_go_now(kind, written, change, parallelism, data):
    keys = data.draw(st.lists(change.values, max_size=5, unique_by=canonical_bytes))
    present = [change.expected(key) for key in keys]
    assume(len(set(map(canonical_bytes, present))) == len(present))
    assume(
        not judge_keys(
            KeyType.of(change.former), KeyType.of(change.present), allows_double=True
        ).refusal
    )
    migration = migration_of(change.former, change.present)
    assume(migration is not None)
    is_int32 = is_int32_type(change.present)
    with tempfile.TemporaryDirectory() as folder, closing(Backends(kind, Path(folder))) as made:
        snapshot = snapshot_of(made, change.former, keys)
        state = written(snapshot)
        snapshot.close(is_kept=True)
        for subtask, backend in enumerate(restored(made, state, migration, parallelism)):
            first, last = key_group_range(GROUPS, parallelism, subtask)
            ours = {
                canonical_bytes(key): number
                for number, key in enumerate(present)
                if first <= key_group(key, GROUPS, is_int32=is_int32) <= last
            }
            timed = [key for key, number in ours.items() if number == 0]
            assert rows_of(backend) == (ours, timed)


@pytest.mark.parametrize(("kind", "written"), WAYS, ids=["heap", "rocks", "rocks-files"])
def test_keys_that_become_one_are_refused_and_both_are_named(kind, written, tmp_path):
    with closing(Backends(kind, tmp_path)) as made:
        snapshot = snapshot_of(made, Types.LONG(), [2**53, 2**53 + 1])
        state = written(snapshot)
        snapshot.close(is_kept=True)
        migration = migration_of(Types.LONG(), Types.DOUBLE())
        with pytest.raises(
            UserError, match=f"two keys become one.*{2**53}.*{2**53 + 1}|{2**53 + 1}"
        ):
            restored(made, state, migration, 1)


@pytest.mark.parametrize(("kind", "written"), WAYS, ids=["heap", "rocks", "rocks-files"])
@pytest.mark.parametrize(("keys", "is_fitting"), [([1, -1], True), (["a"], False), ([1.0], False)])
def test_keys_without_a_type_are_checked_against_the_one_that_is_declared_now(
    kind, written, keys, is_fitting, tmp_path
):
    migration = judge_keys(None, KeyType.of(Types.LONG())).migration
    with closing(Backends(kind, tmp_path)) as made:
        snapshot = snapshot_of(made, None, keys)
        state = written(snapshot)
        snapshot.close(is_kept=True)
        if is_fitting:
            (backend,) = restored(made, state, migration, 1)
            assert rows_of(backend)[0] == {canonical_bytes(1): 0, canonical_bytes(-1): 1}
            return
        with pytest.raises(UserError, match="written without a declared type.*LONG"):
            restored(made, state, migration, 1)


@pytest.mark.parametrize(("kind", "written"), WAYS, ids=["heap", "rocks", "rocks-files"])
def test_keys_without_a_type_move_if_the_declared_one_is_hashed_otherwise(kind, written, tmp_path):
    keys = list(range(-20, 20))
    untyped, present = KeyType.of(Types.PICKLED_BYTE_ARRAY()), Types.INT()
    migration = judge_keys(untyped, KeyType.of(present, is_int32=True)).migration
    with closing(Backends(kind, tmp_path)) as made:
        snapshot = snapshot_of(made, None, keys)
        state = written(snapshot)
        snapshot.close(is_kept=True)
        for subtask, backend in enumerate(restored(made, state, migration, 3)):
            first, last = key_group_range(GROUPS, 3, subtask)
            ours = {
                canonical_bytes(key): number
                for number, key in enumerate(keys)
                if first <= key_group(key, GROUPS, is_int32=True) <= last
            }
            assert rows_of(backend)[0] == ours
