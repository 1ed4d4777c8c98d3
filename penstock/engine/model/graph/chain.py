"""ChainSpec: the operators that one task runs, as they travel to the TaskManager inside a blob.

Source: Flink's OperatorChain and StreamConfig. User code is opaque here (`object`): only a TaskManager opens the blob.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.engine.model.graph.partitioning import Partitioning, ShipStrategy
from penstock.engine.model.graph.stream_graph import ErrorRule
from penstock.engine.model.ids import DataSetId


@dataclass(frozen=True, slots=True)
class ChainTarget:
    """An edge inside the chain: the main output (`tag` None) or side output `tag` goes to a later operator.

    `element_type`: the declared TypeInformation of its records, or None (pickled).
    """

    tag: str | None
    operator_index: int
    element_type: Any = None


@dataclass(frozen=True, slots=True)
class ChainedOperator:
    """One operator of the chain. `operator`: `engine.runtime.operator.Operator`, unopened.

    `output_type`: the declared TypeInformation of its main output, or None (pickled). `on_error`: what becomes of records at which a
    function raises; None: the job fails.
    """

    node_id: int
    name: str
    uid: str
    operator: object
    output_type: object | None
    defined_at: str
    targets: tuple[ChainTarget, ...] = ()
    on_error: ErrorRule | None = None


@dataclass(frozen=True, slots=True)
class ChainOutput:
    """An output of the chain: the main output or side output `tag` of operator `operator_index`.

    Exactly one of `data_set_id` (a result partition) and `driver_stream` (print, collect) is set. `may_be_overtaken`:
    barriers of unaligned checkpoints may overtake its data.
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
    """An input gate, in the order of the vertex's inputs.

    `input_index`: the head's logical input that it feeds. `partitioning`: how its records are distributed to subtasks.
    """

    input_index: int
    element_type: object | None
    partitioning: Partitioning = field(default_factory=lambda: Partitioning(ShipStrategy.FORWARD))


@dataclass(frozen=True, slots=True)
class ChainSpec:
    """The operators from head to tail (topological order), with the inputs and outputs of the chain."""

    operators: tuple[ChainedOperator, ...]
    inputs: tuple[ChainInput, ...]
    outputs: tuple[ChainOutput, ...]
