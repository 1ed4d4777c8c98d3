"""StreamGraph: operators and edges as the user wrote them. Source: Flink StreamGraph, StreamNode.

Holds live user code (operators, partitioners, sources) as opaque objects: it never leaves the
driver as such; `build_job_graph` turns it into blobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from penstock.engine.model.graph.auto_parallelism import AutoParallelism
from penstock.engine.model.graph.partitioning import Partitioning, StreamExchangeMode
from penstock.engine.model.slot_size import SlotSize

DEFAULT_SLOT_SHARING_GROUP: Final = "default"


class ChainingStrategy(StrEnum):
    """Whether an operator may run in one task with its neighbour."""

    ALWAYS = "ALWAYS"
    HEAD = "HEAD"
    HEAD_WITH_SOURCES = "HEAD_WITH_SOURCES"
    NEVER = "NEVER"


@dataclass(slots=True)
class StreamNode:
    """One operator of the program.

    `operator`: a `engine.runtime.operator.Operator` that has not been opened, or a source operator. `coordinator`: its
    counterpart on the JobManager: a `engine.runtime.sources.contract.Source` (its enumerator) or a `engine.runtime.sink.Sink` (its
    committer), else None. `driver_stream`: the stream that carries this operator's output to the driver (print,
    collect), or None. `parallelism` -1: not set, the environment's default applies. `defined_at`: `file:line` of the
    user's call. `side_output_types`: TypeInformation (or None: pickled) of each side output that is read, by tag.
    """

    node_id: int
    name: str
    operator: object
    parallelism: int = -1
    max_parallelism: int = -1
    slot_sharing_group: str | None = None
    co_location_key: str | None = None
    uid: str | None = None
    chaining_strategy: ChainingStrategy = ChainingStrategy.ALWAYS
    is_source: bool = False
    is_bounded: bool = True
    is_parallelism_fixed: bool = False
    output_type: object | None = None
    coordinator: object | None = None
    driver_stream: str | None = None
    defined_at: str = ""
    description: str = ""
    buffer_timeout_ms: int | None = None
    side_output_types: dict[str, object | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamEdge:
    """Records of `source` (its side output `tag`, or the main one) go to input `input_index` of `target`.

    Several edges with one `input_index` are a union. `partitioning` None: chosen when the graph is
    built: FORWARD if the parallelisms are equal, else REBALANCE.
    """

    source: int
    target: int
    partitioning: Partitioning | None = None
    input_index: int = 0
    tag: str | None = None
    exchange_mode: StreamExchangeMode = StreamExchangeMode.UNDEFINED


@dataclass(slots=True)
class StreamGraph:
    """The program: nodes in the order in which they were made, and edges.

    `is_batch`: all inputs are bounded, and an operator reads its input when it is complete. `auto_parallelism`: chooses
    the parallelism of operators that set none, in a batch; None: they have that of `default_of`. `default_parallelisms`: by
    node, the default when it was added; for other nodes `default_parallelism`. `error_rules`: by node, what becomes of
    records at which a function raises; for other nodes the job fails.
    """

    job_name: str = "Flink Streaming Job"
    nodes: dict[int, StreamNode] = field(default_factory=dict)
    edges: list[StreamEdge] = field(default_factory=list)
    is_chaining_enabled: bool = True
    default_parallelism: int = 1
    max_parallelism: int = -1
    buffer_timeout_ms: int = 100
    slot_sizes: dict[str, SlotSize] = field(default_factory=dict)
    is_batch: bool = False
    auto_parallelism: AutoParallelism | None = None
    error_rules: dict[int, ErrorRule] = field(default_factory=dict)
    default_parallelisms: dict[int, int] = field(default_factory=dict)

    def default_of(self, node_id: int) -> int:
        """Return the parallelism of a node that sets none."""
        return self.default_parallelisms.get(node_id, self.default_parallelism)

    def inputs_of(self, node_id: int) -> list[StreamEdge]:
        return [edge for edge in self.edges if edge.target == node_id]

    def outputs_of(self, node_id: int) -> list[StreamEdge]:
        return [edge for edge in self.edges if edge.source == node_id]


@dataclass(frozen=True, slots=True)
class ErrorRule:
    """What an operator does with a record for which a user function raised. Travels with the
    operator.

    The operator puts the record aside and continues with the next one. An operator without a rule
    fails the job. Does not know dead letters or sinks. Source: none in Flink, where such an error
    fails the job.

    `tag`: the side output of the dead letters; None: the record is only counted. `only`: the
    exception classes that the rule covers.
    """

    tag: str | None = None
    only: tuple[type[Exception], ...] = (Exception,)
