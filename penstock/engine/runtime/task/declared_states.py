"""The states that an operator declares, found by opening it without any input: for checks of a savepoint before a job runs.

It is opened as a task would open it, with state in memory, and closed again: `open` of the user's function is called. States that a
function declares later, with its first records, are not found. Does not know savepoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.model.graph.chain import ChainSpec
from penstock.engine.model.ids import JobId
from penstock.engine.runtime.operator import NO_SERVICES
from penstock.engine.runtime.operators.windowed.base import WindowOperator
from penstock.engine.runtime.state.snapshot import KeyedPart, OperatorSnapshot, StateInfo
from penstock.engine.runtime.task.chain_node import node_of
from penstock.engine.runtime.task.operator_contexts import TaskPlace, operator_context

_STATE, _WINDOWS = "state/", "windows/"


@dataclass(slots=True)
class DeclaredStates:
    """What an operator has declared when it is open. `keyed`: as snapshots name it; `lists`: by name, with the declared type.

    `roles`: the beginnings of the names that it can restore; an empty one: only those that it declares. `refusal`: why its windows
    cannot be restored.
    """

    keyed: dict[str, StateInfo] = field(default_factory=dict)
    lists: dict[str, Any] = field(default_factory=dict)
    roles: tuple[str, ...] = ()
    refusal: str = ""


class _Asked:
    """Stands for restored state without rows, and remembers what is asked for."""

    def __init__(self) -> None:
        self.roles: list[str] = []

    def __call__(self, prefix: str, /) -> Iterator[dict[str, KeyedPart]]:
        self.roles.append(prefix)
        return iter(())

    def not_taken(self) -> dict[str, StateInfo]:
        return {}


def declared_states(
    spec: ChainSpec,
    index: int,
    max_parallelism: int,
    saved: Mapping[str, StateInfo],
    clock_ms: Callable[[], int] = lambda: 0,
) -> DeclaredStates:
    """Open the operator at `index` of a chain, which nobody else may use, and close it. `saved`: the states with rows that it would restore.

    Raises: what opening and closing it raises: code of users runs.
    """
    node = node_of(spec, index, clock_ms)
    operator, asked = node.operator, _Asked()
    operator.restore(OperatorSnapshot(pieces=asked))
    context = operator_context(
        _place(node.spec.name, max_parallelism), node.spec, node.timer, NO_SERVICES
    )
    context = replace(context, input_types=node.input_types)
    try:
        operator.open(context)
        snapshot = operator.snapshot()
        found = DeclaredStates(
            {name: part.info for name, part in snapshot.keyed.items()},
            {name: part.type_info for name, part in snapshot.lists.items()},
            tuple(asked.roles),
        )
        if isinstance(operator, WindowOperator):
            found.refusal = _shape_refusal(operator, saved)
    finally:
        operator.close()
    return found


def _shape_refusal(operator: WindowOperator, saved: Mapping[str, StateInfo]) -> str:
    def of_role(role: str) -> dict[str, StateInfo]:
        names = (name for name in saved if name.startswith(role))
        return {name.removeprefix(role): saved[name] for name in names}

    operator.restored_states = of_role(_STATE)
    return operator.shape_refusal(of_role(_WINDOWS))


def _place(name: str, max_parallelism: int) -> TaskPlace:
    return TaskPlace(
        job_name="check",
        job_id=JobId("0" * 32),
        task_name=name,
        subtask=0,
        parallelism=1,
        max_parallelism=max_parallelism,
        attempt=0,
        job_parameters={},
        watermark_interval_ms=0,
        restored_checkpoint_id=None,
        has_final_checkpoint=False,
        is_batch=False,
    )
