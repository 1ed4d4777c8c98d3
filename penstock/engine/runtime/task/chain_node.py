"""One operator of a chain, with its timer, its counters and the places where its output goes. Does not know elements.

Source: Flink OperatorChain, StreamConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.chain import ChainedOperator, ChainSpec, ChainTarget
from penstock.engine.model.messages import LatencySummary
from penstock.engine.runtime.elements import MIN_WATERMARK
from penstock.engine.runtime.interruption import OperatorCalls
from penstock.engine.runtime.operator import Operator, OperatorContext
from penstock.engine.runtime.records.dead_letters import POISON_METRIC, PoisonPlace, PoisonRecords
from penstock.engine.runtime.records.frozen import Dumps
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.task.latency import LatencyStats
from penstock.engine.runtime.user_metrics import Counter, MetricGroup


class CountingMetric:
    """A counter that is used on the mailbox thread."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self, count: int = 1) -> None:
        self.count += count


class OperatorTimer:
    """The only physical processing-time timer of an operator. The chain asks whether it is due."""

    __slots__ = ("_clock_ms", "due_ms")

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.due_ms: int | None = None

    def now_ms(self) -> int:
        return self._clock_ms()

    def schedule(self, at_ms: int) -> None:
        self.due_ms = at_ms

    def cancel(self) -> None:
        self.due_ms = None

    def fires_at(self, now_ms: int) -> bool:
        """Whether the timer is due. If so, it is cleared."""
        if self.due_ms is None or self.due_ms > now_ms:
            return False
        self.due_ms = None
        return True


@dataclass(slots=True)
class OperatorCounts:
    """What went in and out of an operator. `watermarks_in`: the last watermark of each logical input that has had one."""

    records_in: int = 0
    records_out: int = 0
    watermarks_in: dict[int, int] = field(default_factory=dict)
    watermark_out: int = MIN_WATERMARK


@dataclass(slots=True)
class SideOutput:
    """Where the records of a side output go. `element_type`: their declared type, or None (pickled)."""

    element_type: Any
    targets: list[ChainTarget] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ChainNode:
    """One operator with the places where its output goes."""

    spec: ChainedOperator
    operator: Operator
    timer: OperatorTimer
    input_types: tuple[Any, ...]
    targets: tuple[ChainTarget, ...] = ()
    outputs: tuple[int, ...] = ()
    sides: dict[str, SideOutput] = field(default_factory=dict)
    """The side outputs that are read, by their tags."""
    is_announced_idle: bool = False
    counts: OperatorCounts = field(default_factory=OperatorCounts)
    late_records_dropped: CountingMetric = field(default_factory=CountingMetric)
    latency: LatencyStats | None = None
    restored: OperatorSnapshot | None = None
    poison: PoisonRecords | None = None
    has_misfits: bool = False
    """Whether it has got values that are not of their declared type."""

    def latencies(self) -> Iterator[LatencySummary]:
        """The latencies by source. There are none before the first latency marker."""
        return iter(() if self.latency is None else self.latency.summaries(self.spec.uid))


def context_in_chain(
    node: ChainNode,
    context: OperatorContext,
    metrics: MetricGroup,
    calls: OperatorCalls,
    dumps: Dumps,
) -> OperatorContext:
    """The context of a task for an operator, with what its chain gives. Called again for each fresh head of a BATCH job.

    It has what takes poison records, if the operator has a rule for them.
    """
    rule = node.spec.on_error
    if rule is not None and node.poison is None:
        spec = node.spec
        place = PoisonPlace(
            spec.name, spec.defined_at, context.subtask, node.timer.now_ms, calls.complain, dumps
        )
        node.poison = PoisonRecords(rule, place, Counter())
    if node.poison is not None:
        metrics.metrics[POISON_METRIC] = node.poison.counter
    return replace(
        context,
        input_types=node.input_types,
        late_records_dropped=node.late_records_dropped,
        metrics=metrics,
        complain=calls.complain,
        poison=node.poison,
    )


def node_of(spec: ChainSpec, index: int, clock_ms: Callable[[], int]) -> ChainNode:
    """Make the node of an operator. Raises: EngineBug: the object is not an operator."""
    chained = spec.operators[index]
    if not isinstance(chained.operator, Operator):
        raise EngineBug(f"{chained.name}: expected an Operator, got {chained.operator!r}")
    node = ChainNode(chained, chained.operator, OperatorTimer(clock_ms), _input_types(spec, index))
    for target in chained.targets:
        if target.tag is None:
            node.targets += (target,)
        else:
            side = node.sides.setdefault(target.tag, SideOutput(target.element_type))
            side.targets.append(target)
    for place, output in enumerate(spec.outputs):
        if output.operator_index != index:
            continue
        if output.tag is None:
            node.outputs += (place,)
        else:
            side = node.sides.setdefault(output.tag, SideOutput(output.element_type))
            side.outputs.append(place)
    return node


def _input_types(spec: ChainSpec, index: int) -> tuple[Any, ...]:
    """The declared types of an operator's inputs: those of the gates for the head, else the type of its producer's output."""
    if index == 0:
        by_input: dict[int, Any] = {}
        for gate in spec.inputs:
            by_input.setdefault(gate.input_index, gate.element_type)
        return tuple(by_input[i] for i in sorted(by_input))
    for producer in spec.operators:
        for target in producer.targets:
            if target.operator_index == index:
                return (target.element_type,)
    return (None,)
