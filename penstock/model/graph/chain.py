"""ChainSpec: what one task runs, as it travels to the TaskManager inside a blob.

Source: Flink's OperatorChain and StreamConfig. User code is opaque here (`object`): only a
TaskManager opens the blob.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.model.ids import DataSetId


@dataclass(frozen=True, slots=True)
class ChainTarget:
    """Main output (`tag` None) or side output `tag` of an operator goes to a later one of the chain.

    `element_type`: declared TypeInformation of what goes there, or None (pickled).
    """

    tag: str | None
    operator_index: int
    element_type: Any = None


@dataclass(frozen=True, slots=True)
class ChainedOperator:
    """One operator of the chain. `operator`: `runtime.operator.Operator`, unopened.

    `output_type`: the declared TypeInformation of its main output, or None (pickled).
    """

    node_id: int
    name: str
    uid: str
    operator: object
    output_type: object | None
    defined_at: str
    targets: tuple[ChainTarget, ...] = ()


@dataclass(frozen=True, slots=True)
class ChainOutput:
    """What leaves the chain at operator `operator_index`, main output or side output `tag`.

    Exactly one of `data_set_id` (a result partition) and `driver_stream` (print, collect) is set. `may_be_overtaken`: by
    barriers of unaligned checkpoints.
    """

    operator_index: int
    tag: str | None
    data_set_id: DataSetId | None
    driver_stream: str | None
    partitioning: Partitioning
    element_type: object | None
    buffer_timeout_ms: int
    may_be_overtaken: bool = True


@dataclass(frozen=True, slots=True)
class ChainInput:
    """One input gate, in the order of the vertex's inputs: the head's logical input that it feeds, and how its records come
    to their subtasks."""

    input_index: int
    element_type: object | None
    partitioning: Partitioning = field(default_factory=lambda: Partitioning(ShipStrategy.FORWARD))


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """Operators from head to tail (topological order), what comes in, what goes out."""

    operators: tuple[ChainedOperator, ...]
    inputs: tuple[ChainInput, ...]
    outputs: tuple[ChainOutput, ...]
