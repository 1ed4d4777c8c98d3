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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.engine.model.checkpoints import StateHandle
from penstock.engine.model.completed_checkpoint import (
    CompletedCheckpoint,
    InFlightShare,
    OperatorCheckpoint,
)
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.engine.model.graph.partitioning import ShipStrategy, may_be_overtaken
from penstock.engine.model.ids import DataSetId
from penstock.engine.model.key_groups import restore_sources

_AT_CONSUMER: Final = 0
_AT_PRODUCER: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    """Sorted in the order of reading. `producer`: for records in hand, their order."""

    producer: int
    place: int
    handle: StateHandle = field(compare=False)


class InFlightPlan:
    """All data in flight of one checkpoint, by its consumers."""

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
        first, behind = (-(-one * self._old // self._new) for one in (subtask, subtask + 1))
        return range(first, behind)

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
