"""Snapshots of an operator's subtasks, written and read again at another parallelism, with handles in memory."""

import pickle
import zlib

from penstock.engine.machines.checkpoints.restore import (
    Mode,
    OperatorStateShape,
    redistribute,
)
from penstock.engine.model.checkpoints import (
    InlineHandle,
    ListStateShare,
    OperatorRestore,
    OperatorSubtaskState,
)
from penstock.engine.runtime.keys import key_group_range
from penstock.engine.runtime.records.frozen import plain_dumps
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, Sharing
from penstock.engine.runtime.state.snapshot_reader import OtherParts, read_operator
from penstock.engine.runtime.state.snapshot_writer import write_operator

MAX_PARALLELISM = 128
PIECES = {"heap": OtherParts.HELD, "rocks": OtherParts.READ_AGAIN}
"""As tasks read keyed state, by kind of backend."""


def add(data: bytes) -> InlineHandle:
    return InlineHandle(data, zlib.crc32(data))


def read(handle: InlineHandle) -> bytes:
    assert zlib.crc32(handle.data) == handle.checksum
    return handle.data


def written_state(snapshot: OperatorSnapshot) -> OperatorSubtaskState:
    return write_operator(snapshot, add, plain_dumps, pickle.loads)


def written_as_files(
    snapshot: OperatorSnapshot, parallelism: int, subtask: int
) -> OperatorSubtaskState:
    """What lies on disk as the files that it is, as in an incremental checkpoint."""
    groups = key_group_range(MAX_PARALLELISM, parallelism, subtask)
    sharing = Sharing(groups, add, lambda handle: True)
    return write_operator(snapshot, add, plain_dumps, pickle.loads, sharing)


def rescaled(
    snapshots: list[OperatorSnapshot], parallelism: int, pieces: OtherParts | None = None
) -> list[OperatorSnapshot]:
    """What each of `parallelism` subtasks restores of these, which were frozen."""
    return restored([written_state(snapshot) for snapshot in snapshots], parallelism, pieces)


def restored(
    states: list[OperatorSubtaskState], parallelism: int, pieces: OtherParts | None = None
) -> list[OperatorSnapshot]:
    """What each of `parallelism` subtasks restores of what was written."""
    return [
        read_operator(
            OperatorRestore(
                tuple(handle for state in states for handle in state.keyed),
                _shares(states, parallelism, subtask),
                databases=tuple(one for state in states for one in state.databases),
            ),
            read,
            key_group_range(MAX_PARALLELISM, parallelism, subtask),
            pickle.loads,
            pieces,
        )
        for subtask in range(parallelism)
    ]


def _shares(states: list[OperatorSubtaskState], parallelism: int, subtask: int):
    lists = {one.name: one for state in states for one in state.lists}
    written_lists = {
        (old, one.name): one for old, state in enumerate(states) for one in state.lists
    }

    def count(old: int, name: str) -> int:
        found = written_lists.get((old, name))
        return 0 if found is None else len(found.offsets)

    shapes = {
        name: OperatorStateShape(
            Mode(one.mode.value), tuple(count(old, name) for old in range(len(states)))
        )
        for name, one in lists.items()
    }
    return tuple(
        ListStateShare(written_lists[old, name], index, index)
        for name, parts in redistribute(shapes, parallelism)[subtask].items()
        for old, indices in parts.items()
        for index in indices
    )
