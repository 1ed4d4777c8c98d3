"""From a completed checkpoint to what each attempt begins with, at any parallelism up to the max
parallelism.

Knows no file and no attempt. Operators are matched by uid, keyed state is assigned by key groups,
operator state by `engine/machines/checkpoints/restore.py`. Source: Flink StateAssignmentOperation,
TaskStateAssignment, Checkpoints.loadAndValidateCheckpoint, VertexFinishedStateChecker
(docs/spec/state.md#operator-state, #rescaling-keyed-state,
docs/spec/checkpoints.md#savepoints-and-stopping, #finished-tasks). Differs: a handle of keyed state
is handed over whole. Data in flight: `InFlightPlan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, TypeVar

from penstock.engine.machines.checkpoints.key_checks import (
    has_keyed,
    kinds_of,
    migration_of,
    named,
    verdict_on_keys,
)
from penstock.engine.model.checkpoints import (
    CompletedCheckpoint,
    DatabaseHandle,
    InFlightShare,
    KeyedStateHandle,
    ListStateHandle,
    ListStateShare,
    OperatorCheckpoint,
    OperatorRestore,
    OperatorSubtaskState,
    RedistributionMode,
    StateHandle,
    TaskRestore,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobEdge, JobGraph, JobVertex, OperatorInfo
from penstock.engine.model.graph.partitioning import ShipStrategy, may_be_overtaken
from penstock.engine.model.ids import DataSetId, ExecutionVertexId, VertexId
from penstock.engine.model.key_groups import operator_index, restore_sources
from penstock.engine.model.key_types import KeyMigration

# ---------------------------------------------------------------------- operator state
# Redistribution of operator state (list and broadcast state) to another number of subtasks. Pure.
#
# A partition is one element of a list state, or one entry of a broadcast state's copy; it is
# named by the old subtask and its index there. Knows no file. Source: Flink
# RoundRobinOperatorStateRepartitioner (docs/spec/state.md#operator-state).


Parts: TypeAlias = dict[int, list[int]]
"""Old subtask -> indices of its partitions, in order."""
Mode: TypeAlias = RedistributionMode
"""How a state is redistributed: evenly, all of it to every subtask, or one of the equal copies to each."""


@dataclass(frozen=True, slots=True)
class OperatorStateShape:
    """`partition_counts`: of each old subtask; 0: it reported none (for example because it had finished)."""

    mode: Mode
    partition_counts: tuple[int, ...]


def redistribute(
    states: Mapping[str, OperatorStateShape], new_parallelism: int
) -> list[dict[str, Parts]]:
    """Return what each new subtask restores, by state name. States of which it gets nothing are left out.

    With the same parallelism, lists stay where they are, even if they are uneven. Raises:
    ConfigurationError: a parallelism below 1.
    """
    if new_parallelism < 1:
        raise ConfigurationError(f"parallelism must be at least 1, got {new_parallelism}")
    result: list[dict[str, Parts]] = [{} for _ in range(new_parallelism)]
    start = 0
    for name, shape in states.items():
        counts = shape.partition_counts
        is_unchanged = len(counts) == new_parallelism
        if shape.mode is Mode.UNION:
            shares = [_all_of(counts) for _ in result]
        elif shape.mode is Mode.BROADCAST:
            shares = _copies(counts, new_parallelism)
        elif is_unchanged:
            shares = [_of(old, counts) for old in range(new_parallelism)]
        else:
            shares, start = _split(counts, new_parallelism, start)
        for subtask, share in enumerate(shares):
            if share:
                result[subtask][name] = share
    return result


def _of(old: int, counts: Sequence[int]) -> Parts:
    return {old: list(range(counts[old]))} if counts[old] else {}


def _all_of(counts: Sequence[int]) -> Parts:
    return {old: list(range(count)) for old, count in enumerate(counts) if count}


def _copies(counts: Sequence[int], new_parallelism: int) -> list[Parts]:
    """Give each subtask its own copy if all have one, else one of the reported copies, in turn."""
    reported = [old for old, count in enumerate(counts) if count]
    if not reported:
        return [{} for _ in range(new_parallelism)]
    return [_of(reported[new % len(reported)], counts) for new in range(new_parallelism)]


def _split(counts: Sequence[int], new_parallelism: int, start: int) -> tuple[list[Parts], int]:
    """Split consecutive partitions over the subtasks, from `start` on. Returns also: the start for the next state."""
    partitions = [(old, index) for old, count in enumerate(counts) for index in range(count)]
    base, rest = divmod(len(partitions), new_parallelism)
    shares: list[Parts] = [{} for _ in range(new_parallelism)]
    position = 0
    for turn in range(new_parallelism):
        size = base + (turn < rest)
        share = shares[(start + turn) % new_parallelism]
        for old, index in partitions[position : position + size]:
            share.setdefault(old, []).append(index)
        position += size
    return shares, (start + rest) % new_parallelism


# ---------------------------------------------------------------------- restore


_EMPTY = OperatorSubtaskState()
KEYS_NEXT_STEP: Final = (
    "Declare the key type of key_by as it was, or give the operator another uid and start with "
    "'execution.state-recovery.ignore-unclaimed-state: true' (--allow-non-restored-state), which "
    "drops its state."
)


def adopt_max_parallelism(job_graph: JobGraph, checkpoint: CompletedCheckpoint) -> None:
    """Keep the number of key groups of keyed state: vertices that set no max parallelism take that
    of the checkpoint.

    Must run before anything is made of the job graph. Raises: ConfigurationError: a vertex sets
    another one.
    """
    found = {operator.uid: operator for operator in checkpoint.operators}
    for vertex in job_graph.vertices.values():
        for operator in vertex.operators:
            old = found.get(operator.uid)
            if old is None or not has_keyed(old) or old.max_parallelism == vertex.max_parallelism:
                continue
            if vertex.is_max_parallelism_set or vertex.parallelism > old.max_parallelism:
                raise ConfigurationError(
                    f"{named(operator.uid, operator.name)} has keyed state of checkpoint "
                    f"{checkpoint.checkpoint_id} in {old.max_parallelism} key groups, and the "
                    f"program has parallelism {vertex.parallelism} and max parallelism "
                    f"{vertex.max_parallelism}. The number of key groups cannot change. Set "
                    f"set_max_parallelism({old.max_parallelism}) and a parallelism up to that."
                )
            vertex.max_parallelism = old.max_parallelism


class RestorePlan:
    """What attempts begin with after a restart from this checkpoint. Computed per vertex, when it is first needed."""

    def __init__(
        self,
        job_graph: JobGraph,
        checkpoint: CompletedCheckpoint,
        *,
        is_unclaimed_state_ignored: bool = False,
        allows_double: bool = False,
    ) -> None:
        """`allows_double`: integers in keys and values may become DOUBLE.

        Raises: ConfigurationError: the program has no operator for a state, or cannot take the state as it is.
        """
        self.checkpoint = checkpoint
        self._job = job_graph
        self._old = {operator.uid: operator for operator in checkpoint.operators}
        self._allows_double = allows_double
        self._shares: dict[VertexId, list[TaskRestore]] = {}
        self._keys = self._judged_keys()
        if not is_unclaimed_state_ignored:
            self._check_claimed()
        self._finished = {
            vertex.vertex_id for vertex in job_graph.vertices.values() if self._is_finished(vertex)
        }
        self._begin_again_after_open_ends()
        self._check_finished()
        self._in_flight = InFlightPlan(checkpoint)
        self._in_flight.check(job_graph, is_unclaimed_state_ignored=is_unclaimed_state_ignored)

    def of(self, vertex_id: ExecutionVertexId) -> TaskRestore:
        shares = self._shares.get(vertex_id.vertex_id)
        if shares is None:
            shares = self._shares_of(self._job.vertices[vertex_id.vertex_id])
            self._shares[vertex_id.vertex_id] = shares
        return shares[vertex_id.subtask]

    @property
    def coordinator_states(self) -> tuple[tuple[str, bytes], ...]:
        """(uid, state) of the operators whose coordinator has state."""
        return tuple(
            (operator.uid, operator.coordinator_state)
            for operator in self.checkpoint.operators
            if operator.coordinator_state is not None
        )

    def _shares_of(self, vertex: JobVertex) -> list[TaskRestore]:
        checkpoint_id = self.checkpoint.checkpoint_id
        is_finished = vertex.vertex_id in self._finished
        columns = [
            (operator.uid, self._operator_shares(operator, vertex))
            for operator in vertex.operators
            if operator.uid in self._old and not is_finished
        ]
        in_flight = self._in_flight.shares_of(vertex)
        return [
            TaskRestore(
                checkpoint_id,
                tuple((uid, shares[subtask]) for uid, shares in columns),
                is_finished,
                () if is_finished else in_flight[subtask],
            )
            for subtask in range(vertex.parallelism)
        ]

    def _operator_shares(self, operator: OperatorInfo, vertex: JobVertex) -> list[OperatorRestore]:
        old = self._old[operator.uid]
        shares = _operator_shares(old, vertex, self._keys.get(operator.uid))
        # A job's own checkpoints have the keys that it selects.
        is_own = self.checkpoint.job_id == self._job.job_id
        kinds = () if is_own else kinds_of(old)
        allows_double = self._allows_double
        return [replace(one, allows_double=allows_double, key_kinds=kinds) for one in shares]

    # ------------------------------------------------------------------ checks

    def _judged_keys(self) -> dict[str, KeyMigration]:
        """What is done to restored keys, by uid. Raises: ConfigurationError: they cannot be those of the program."""
        found: dict[str, KeyMigration] = {}
        operators = (one for vertex in self._job.vertices.values() for one in vertex.operators)
        for operator in operators:
            old = self._old.get(operator.uid)
            if old is None:
                continue
            verdict = verdict_on_keys(
                old, operator, self.checkpoint, allows_double=self._allows_double
            )
            if verdict.refusal:
                raise ConfigurationError(
                    f"{named(operator.uid, operator.name)} cannot restore its keyed state of "
                    "checkpoint "
                    f"{self.checkpoint.checkpoint_id}: {verdict.refusal}. With other keys no "
                    "record would find its "
                    f"state. {KEYS_NEXT_STEP}"
                )
            migration = migration_of(verdict, operator)
            if migration is not None:
                found[operator.uid] = migration
        return found

    def _check_claimed(self) -> None:
        known = {o.uid for vertex in self._job.vertices.values() for o in vertex.operators}
        for old in self.checkpoint.operators:
            if old.uid in known or not has_state(old):
                continue
            states = sorted({one.name for state in old.subtasks if state for one in state.lists})
            raise ConfigurationError(
                f"checkpoint {self.checkpoint.checkpoint_id} has state of "
                f"{named(old.uid, old.name)} with parallelism {old.parallelism} "
                f"({_kinds(old, states)}), and the program has no operator of that uid. Give "
                "the operator its uid back, or drop the state with "
                "'execution.state-recovery.ignore-unclaimed-state: true' "
                "(--allow-non-restored-state). The program's uids: "
                f"{', '.join(sorted(known)) or 'none'}."
            )

    def _is_finished(self, vertex: JobVertex) -> bool:
        done = [
            operator.uid in self._old and self._old[operator.uid].is_fully_finished
            for operator in vertex.operators
        ]
        if any(done) and not all(done):
            names = [
                named(operator.uid, operator.name)
                for operator, is_done in zip(vertex.operators, done, strict=True)
                if not is_done
            ]
            raise ConfigurationError(
                f"vertex '{vertex.name}' chains operators that had finished at checkpoint "
                f"{self.checkpoint.checkpoint_id} with others that had not: {', '.join(names)}. "
                "Start a new chain between them (start_new_chain)."
            )
        return bool(done) and all(done)

    def _begin_again_after_open_ends(self) -> None:
        """Run a finished vertex again if a producer only ends once more.

        Such a vertex must hear that end, so it is not restored as finished.
        """
        is_changed = True
        while is_changed:
            open_ended = {
                vertex_id
                for vertex_id in self._finished
                for edge in self._job.vertices[vertex_id].inputs
                if edge.source not in self._finished and self._is_at_end(edge.source)
            }
            self._finished -= open_ended
            is_changed = bool(open_ended)

    def _is_at_end(self, vertex_id: VertexId) -> bool:
        found = [
            self._old.get(operator.uid) for operator in self._job.vertices[vertex_id].operators
        ]
        return all(old is not None and old.is_at_end for old in found)

    def _check_finished(self) -> None:
        for vertex_id in self._finished:
            vertex = self._job.vertices[vertex_id]
            for edge in vertex.inputs:
                if edge.source not in self._finished:
                    raise ConfigurationError(
                        f"vertex '{vertex.name}' had finished at checkpoint "
                        f"{self.checkpoint.checkpoint_id}, but it reads from "
                        f"'{self._job.vertices[edge.source].name}', which had not finished, "
                        "so the output of that vertex would be lost. Let another operator "
                        "read that input."
                    )


def _operator_shares(
    old: OperatorCheckpoint, vertex: JobVertex, keys: KeyMigration | None
) -> list[OperatorRestore]:
    """Return the shares of one operator's state, by new subtask. Of keys that belong to other key
    groups now, each subtask gets all.
    """
    states = [state or _EMPTY for state in old.subtasks]
    lists = list_shares(states, vertex.parallelism)
    keyed = shared_out([h for state in states for h in state.keyed], vertex, keys)
    databases = shared_out([d for state in states for d in state.databases], vertex, keys)
    return [
        OperatorRestore(keyed[subtask], lists[subtask], databases[subtask], keys)
        for subtask in range(vertex.parallelism)
    ]


_Keyed = TypeVar("_Keyed", KeyedStateHandle, DatabaseHandle)


def shared_out(
    handles: Sequence[_Keyed], vertex: JobVertex, keys: KeyMigration | None
) -> list[tuple[_Keyed, ...]]:
    """Return by new subtask which handles have key groups of it, in their order. The work grows with the handles and the subtasks, not with
    their product.
    """
    parallelism = vertex.parallelism
    if keys is not None and keys.is_rerouted:
        return [tuple(handles)] * parallelism
    shares: list[list[_Keyed]] = [[] for _ in range(parallelism)]
    for handle in handles:
        first, last = (
            operator_index(group, vertex.max_parallelism, parallelism)
            for group in (handle.first_group, handle.last_group)
        )
        for subtask in range(first, last + 1):
            shares[subtask].append(handle)
    return [tuple(share) for share in shares]


def list_shares(
    states: Sequence[OperatorSubtaskState], parallelism: int
) -> list[tuple[ListStateShare, ...]]:
    written: dict[str, dict[int, ListStateHandle]] = {}
    for subtask, state in enumerate(states):
        for handle in state.lists:
            written.setdefault(handle.name, {})[subtask] = handle
    shapes = {
        name: OperatorStateShape(
            next(iter(by_subtask.values())).mode,
            tuple(len(by_subtask[i].offsets) if i in by_subtask else 0 for i in range(len(states))),
        )
        for name, by_subtask in written.items()
    }
    return [
        tuple(
            ListStateShare(written[name][subtask], indices[0], indices[-1])
            for name, parts in share.items()
            for subtask, indices in parts.items()
        )
        for share in redistribute(shapes, parallelism)
    ]


def has_state(old: OperatorCheckpoint) -> bool:
    """Whether it must be claimed by an operator of the program."""
    has_parts = any(state is not None and any(state.handles) for state in old.subtasks)
    return has_parts or old.coordinator_state is not None


def _kinds(old: OperatorCheckpoint, lists: Sequence[str]) -> str:
    kinds = ["keyed state"] if has_keyed(old) else []
    kinds += [f"list state '{name}'" for name in lists]
    if old.coordinator_state is not None:
        kinds.append("its coordinator's state")
    return ", ".join(kinds) or "data in flight"


_AT_CONSUMER: Final = 0
_AT_PRODUCER: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    """Sorted in the order of reading. `producer`: for records in hand, their order."""

    producer: int
    place: int
    handle: StateHandle = field(compare=False)


class InFlightPlan:
    """Which subtasks read the data in flight of an unaligned checkpoint, at any parallelism of both
    ends of an edge.

    Consumers read all of it before anything new: first the records in hand, then for each former
    channel the data at its consumer, and after that the data at its producer. So the records of one
    producer for one key keep their order. Where records are distributed by content, every subtask that
    may own some gets all of the data and keeps its own records; elsewhere the data of a former subtask
    goes to one new subtask. Knows no record. Source: Flink StateAssignmentOperation,
    TaskStateAssignment, SubtaskStateMapper, InflightDataRescalingDescriptor
    (docs/spec/exchange.md#choosing-a-channel, docs/spec/checkpoints.md#data-in-flight). Differs: data
    at a producer is restored by its consumer, as newer Flink can do; shares are matched by edge, not by
    the gates' order.

    All data in flight of one checkpoint, by its consumers.
    """

    def __init__(self, checkpoint: CompletedCheckpoint) -> None:
        self._checkpoint_id = checkpoint.checkpoint_id
        self._old = {operator.uid: operator for operator in checkpoint.operators}
        self._on_edges: dict[DataSetId, dict[int, list[_Piece]]] = {}
        self._ends: dict[DataSetId, str] = {}
        self._in_hand: dict[str, dict[int, list[_Piece]]] = {}
        for operator in checkpoint.operators:
            self._collect(operator)

    def _collect(self, operator: OperatorCheckpoint) -> None:
        for subtask, state in enumerate(operator.subtasks):
            if state is None:
                continue
            for one in state.inputs_in_flight:
                if one.data_set_id is None:
                    in_hand = self._in_hand.setdefault(operator.uid, {}).setdefault(subtask, [])
                    in_hand.append(_Piece(one.channel, _AT_CONSUMER, one.handle))
                else:
                    piece = _Piece(one.channel, _AT_CONSUMER, one.handle)
                    self._add(one.data_set_id, subtask, piece, operator)
            for one in state.outputs_in_flight:
                assert one.data_set_id is not None, "output data in flight has an edge"
                piece = _Piece(subtask, _AT_PRODUCER, one.handle)
                self._add(one.data_set_id, one.channel, piece, operator)

    def _add(
        self, edge: DataSetId, consumer: int, piece: _Piece, found_at: OperatorCheckpoint
    ) -> None:
        self._on_edges.setdefault(edge, {}).setdefault(consumer, []).append(piece)
        side = "into" if piece.place == _AT_CONSUMER else "out of"
        self._ends.setdefault(edge, f"{side} operator '{found_at.name}' (uid '{found_at.uid}')")

    def check(self, job_graph: JobGraph, *, is_unclaimed_state_ignored: bool) -> None:
        """Raises: ConfigurationError: the program has no reader for some of the data, or one among
        which it cannot be divided.
        """
        edges = {
            edge.data_set_id for vertex in job_graph.vertices.values() for edge in vertex.inputs
        }
        heads = {
            vertex.operators[0].uid for vertex in job_graph.vertices.values() if vertex.operators
        }
        if not is_unclaimed_state_ignored:
            for edge, end in self._ends.items():
                if edge not in edges:
                    raise self._refused(
                        end,
                        "the program has no such edge: one of its ends or its partitioning "
                        "has changed",
                    )
            for uid in self._in_hand:
                if uid not in heads:
                    end = f"into operator '{self._old[uid].name}' (uid '{uid}')"
                    raise self._refused(
                        end, "the program does not have that operator as the head of a chain"
                    )
        for vertex in job_graph.vertices.values():
            is_in_flight = any(edge.data_set_id in self._on_edges for edge in vertex.inputs)
            may_be = may_be_overtaken(edge.ship_strategy for edge in vertex.inputs)
            if is_in_flight and not may_be:
                end = f"into vertex '{vertex.name}'"
                raise self._refused(
                    end,
                    "the vertex now reads a point-wise or broadcast edge, which it did not before",
                )

    def _refused(self, end: str, why: str) -> ConfigurationError:
        return ConfigurationError(
            f"checkpoint {self._checkpoint_id} is unaligned and holds data in flight {end}, "
            f"but {why}. Begin with the unchanged program (only parallelisms may change), or "
            "with a savepoint. 'execution.state-recovery.ignore-unclaimed-state: true' drops "
            "those records."
        )

    def shares_of(self, vertex: JobVertex) -> list[tuple[InFlightShare, ...]]:
        """Return the shares by subtask of the vertex, in the order of reading."""
        old = self._old.get(vertex.operators[0].uid) if vertex.operators else None
        is_any = any(edge.data_set_id in self._on_edges for edge in vertex.inputs)
        if old is None or not (is_any or old.uid in self._in_hand):
            return [()] * vertex.parallelism
        scaled = _Scaled(old, vertex)
        return [tuple(self._of(scaled, vertex, subtask)) for subtask in range(vertex.parallelism)]

    def _of(self, scaled: _Scaled, vertex: JobVertex, subtask: int) -> Iterator[InFlightShare]:
        readers = {edge.data_set_id: scaled.sources(edge, subtask) for edge in vertex.inputs}
        sources = sorted(set(scaled.owned(subtask)).union(*readers.values()))
        in_hand = self._in_hand.get(vertex.operators[0].uid, {})
        yield from scaled.shares(in_hand, None, sources, subtask)
        for edge in vertex.inputs:
            pieces = self._on_edges.get(edge.data_set_id, {})
            yield from scaled.shares(pieces, edge.data_set_id, readers[edge.data_set_id], subtask)


class _Scaled:
    """The old and the new readers of an edge."""

    def __init__(self, old: OperatorCheckpoint, vertex: JobVertex) -> None:
        self._old = old.parallelism
        self._new = vertex.parallelism
        self._groups = vertex.max_parallelism
        self._is_same_groups = old.max_parallelism == vertex.max_parallelism
        self._is_same = self._old == self._new and self._is_same_groups

    def owned(self, subtask: int) -> Sequence[int]:
        """Return the former subtasks whose whole data goes to this one. Each goes to one subtask, in order."""
        first, stop = (-(-one * self._old // self._new) for one in (subtask, subtask + 1))
        return range(first, stop)

    def sources(self, edge: JobEdge, subtask: int) -> Sequence[int]:
        """Return the former subtasks that may have records of this one."""
        strategy = edge.ship_strategy
        if self._is_same or not strategy.goes_by_content:
            return self.owned(subtask)
        if strategy is ShipStrategy.HASH and self._is_same_groups:
            found = restore_sources(self._groups, self._old, self._new, subtask)
            return [old for old, _ in found]
        return range(self._old)

    def shares(
        self,
        pieces: Mapping[int, list[_Piece]],
        edge: DataSetId | None,
        sources: Sequence[int],
        subtask: int,
    ) -> Iterator[InFlightShare]:
        owned = self.owned(subtask)
        for old in sources:
            for piece in sorted(pieces.get(old, ())):
                yield InFlightShare(
                    edge,
                    piece.producer,
                    piece.handle,
                    is_filtered=not self._is_same,
                    is_owner=old in owned,
                )
