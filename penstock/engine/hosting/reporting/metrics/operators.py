"""The metrics of the operators of a chain, read outside the task's thread. The chain counts per batch; nothing here runs for a record.

Source: Flink InternalOperatorMetricGroup, OperatorIOMetricGroup, LatencyStats.

The metrics of user functions as they are reported. Does not know who registered them.

Source: PyFlink's MetricGroup in process mode; differs: a meter has its rate here, and gauges may give any number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from penstock.engine.metrics import registry as rates
from penstock.engine.metrics.registry import Registry, SpentTime, quantiles_of
from penstock.engine.metrics.report_format import Section
from penstock.engine.metrics.scopes import Component
from penstock.engine.model.metrics import Distribution as DistributionValue
from penstock.engine.model.metrics import Groups, Measured, MetricType, Rate, Value, counter, gauge
from penstock.engine.runtime.elements import MIN_WATERMARK
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.chain import OperatorChain
from penstock.engine.runtime.task.chain_node import ChainNode
from penstock.engine.runtime.user_metrics import (
    MOST_CHARACTERS,
    MOST_NUMBERS,
    Counter,
    Distribution,
    Gauge,
    Meter,
    Metric,
    whole_name,
)
from penstock.engine.runtime.watermarks.by_split import SplitSpent

Walk: TypeAlias = Callable[[], Iterator[tuple[Groups, str, Metric]]]
_INT64: Final = range(-(2**63), 2**63)


class Allowance:
    """How many metrics of users one task may report. `left_out`: how many more it has, or whose names are too long."""

    def __init__(self) -> None:
        self.left_out = 0
        self._left = MOST_NUMBERS

    def begin(self) -> None:
        """A report begins."""
        self.left_out, self._left = 0, MOST_NUMBERS

    def admits(self, groups: Groups, name: str) -> bool:
        """Whether one more metric is reported. If not, it is counted."""
        if self._left > 0 and len(whole_name(groups, name)) <= MOST_CHARACTERS:
            self._left -= 1
            return True
        self.left_out += 1
        return False


class UserMetricsView:
    """The metrics of one operator's functions. Call `update` every 5 s."""

    def __init__(self, walk: Walk, allowance: Allowance) -> None:
        self._walk = walk
        self._allowance = allowance
        self._meters: dict[Meter, rates.Meter] = {}

    def update(self) -> None:
        """Move the rates of the users' meters on."""
        known, self._meters = self._meters, {}
        for _, _, metric in self._walk():
            if isinstance(metric, Meter):
                self._meters[metric] = meter = known.get(metric) or _meter_of(metric)
                meter.update()

    def measured(self) -> Iterator[Measured]:
        """All metrics that have a value and that the task may report."""
        for groups, name, metric in self._walk():
            found = self._value(metric)
            if found is not None and self._allowance.admits(groups, name):
                yield Measured(name, *found, groups)

    def _value(self, metric: Metric) -> tuple[MetricType, Value] | None:
        if isinstance(metric, Counter):
            count = metric.get_count()
            return (MetricType.COUNTER, count) if _is_whole(count) else None
        if isinstance(metric, Gauge):
            return None if metric.last is None else (MetricType.GAUGE, metric.last)
        if isinstance(metric, Meter):
            count, meter = metric.get_count(), self._meters.get(metric)
            per_s = 0.0 if meter is None else meter.per_s
            return (MetricType.METER, Rate(per_s, count)) if _is_whole(count) else None
        if isinstance(metric, Distribution) and metric.count:
            return MetricType.GAUGE, _distribution(metric)
        return None


def _meter_of(metric: Meter) -> rates.Meter:
    return rates.Meter(metric.get_count, metric.time_span_in_seconds)


def _is_whole(count: object) -> bool:
    return isinstance(count, int) and count in _INT64


def _distribution(metric: Distribution) -> Value:
    """The value, or its text if users gave it other numbers than ints."""
    numbers = (metric.sum, metric.count, metric.min, metric.max)
    assert metric.min is not None, "a distribution with values has a minimum"
    assert metric.max is not None, "a distribution with values has a maximum"
    value = DistributionValue(metric.sum, metric.count, metric.min, metric.max)
    return value if all(map(_is_whole, numbers)) else str(value)


StateSize = Callable[[str], "int | None"]
Figures = Callable[[], Mapping[str, tuple[int, SplitSpent]]]
_SECOND_MS = 1000


class SplitMetrics:
    """The metrics of the splits of one source operator: watermarks, and shares of time. `update` is called every 5 s.

    Source: Flink SourceSplitMetricGroup.
    """

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._spent: dict[str, SplitSpent] = {}
        self._shares: dict[str, tuple[SpentTime, SpentTime]] = {}

    def update(self) -> None:
        """Move the shares of time on. Splits that are gone are forgotten."""
        self._spent = {split: spent for split, (_, spent) in self._figures().items()}
        known, self._shares = self._shares, {}
        for split in self._spent:
            self._shares[split] = shares = known.get(split) or self._new_shares(split)
            for one in shares:
                one.update()

    def measured(self) -> Iterator[Measured]:
        for split, (watermark_ms, spent) in self._figures().items():
            groups: Groups = (("split", split), ("watermark", None))
            for name, value in self._values(split, watermark_ms, spent):
                yield Measured(name, MetricType.GAUGE, value, groups)

    def _new_shares(self, split: str) -> tuple[SpentTime, SpentTime]:
        def paused_ms() -> int:
            return self._spent[split].paused_ms

        def idle_ms() -> int:
            return self._spent[split].idle_ms

        return SpentTime(paused_ms), SpentTime(idle_ms)

    def _values(
        self, split: str, watermark_ms: int, spent: SplitSpent
    ) -> Iterator[tuple[str, Value]]:
        shares = self._shares.get(split)
        paused, idle = (0, 0) if shares is None else (one.ms_per_s for one in shares)
        yield "currentWatermark", watermark_ms
        yield "activeTimeMsPerSecond", max(0, _SECOND_MS - paused - idle)
        yield "pausedTimeMsPerSecond", paused
        yield "idleTimeMsPerSecond", idle
        yield "accumulatedActiveTimeMs", spent.active_ms
        yield "accumulatedPausedTimeMs", spent.paused_ms
        yield "accumulatedIdleTimeMs", spent.idle_ms


class OperatorMetrics:
    """The metrics of one operator, from when it is open."""

    def __init__(self, chain: OperatorChain, node: ChainNode, allowance: Allowance) -> None:
        uid = node.spec.uid
        self.variables = {"operator_id": uid, "operator_name": node.spec.name}
        self.registry = Registry()
        self.user = UserMetricsView(lambda: chain.user_metrics.of(uid), allowance)
        # The first of a name stays, so an operator may have its own figure for a common name.
        self.registry.add(*node.operator.own_metrics())
        _add_common(self.registry, node, inputs=_inputs(chain, node))
        self.registry.more(node.operator.measured)
        if isinstance(node.operator, SourceOperator):
            splits = SplitMetrics(node.operator.split_figures)
            self.registry.more(splits.measured)
            self.registry.updated(splits)
        self.registry.more(self.user.measured)
        self.registry.updated(self.user)


class ChainMetrics:
    """The metrics of all operators of a chain. Until `opened` there are none.

    `variables`: of the task: `job_id`, `job_name`, `task_id`, `task_name`.
    """

    def __init__(self, chain: OperatorChain, variables: Mapping[str, str]) -> None:
        self._chain = chain
        self._variables = variables
        self._operators: list[OperatorMetrics] = []
        self.allowance = Allowance()

    def opened(self, state_size: StateSize = lambda _uid: None) -> None:
        """The operators are open. `state_size`: bytes of an operator's state in the last snapshot, by its uid; None: unknown."""
        made = [OperatorMetrics(self._chain, node, self.allowance) for node in self._chain.nodes]
        for one in made:
            uid = one.variables["operator_id"]
            one.registry.add(gauge("stateSize", partial(state_size, uid)))
        self._operators = made

    def update(self) -> None:
        """Move rates on. Every 5 s."""
        for one in self._operators:
            one.registry.update()

    def sections(self, subtask: int, attempt: int) -> Iterator[Section]:
        """One section for each operator."""
        self.allowance.begin()
        for one in self._operators:
            variables = {**self._variables, **one.variables}
            yield Section(Component.OPERATOR, variables, one.registry.measured(), subtask, attempt)

    @property
    def fired_timers(self) -> int:
        return sum(node.operator.fired_timers for node in self._chain.nodes)

    def latencies(self, subtask: int) -> Iterator[Measured]:
        """The latency histograms, which Flink has below the task."""
        for node in self._chain.nodes:
            if node.latency is None:
                continue
            for (source, source_subtask), found in list(node.latency.histograms.items()):
                groups: list[tuple[str, str | None]] = [("latency", None)]
                if source:
                    groups.append(("source_id", source))
                if source_subtask >= 0:
                    groups.append(("source_subtask_index", str(source_subtask)))
                groups.append(("operator_id", node.spec.uid))
                groups.append(("operator_subtask_index", str(subtask)))
                value = quantiles_of(found.kept().tolist(), found.count)
                yield Measured("latency", MetricType.HISTOGRAM, value, tuple(groups))


def _inputs(chain: OperatorChain, node: ChainNode) -> int:
    """The number of an operator's inputs; 0 for a source."""
    if node is not chain.nodes[0]:
        return 1
    return len({gate.input_index for gate in chain.spec.inputs})


def _add_common(registry: Registry, node: ChainNode, inputs: int) -> None:
    none: Groups = ()
    registry.add(
        counter("numRecordsIn", lambda: node.counts.records_in, none, has_rate=True),
        counter("numRecordsOut", lambda: node.counts.records_out, none, has_rate=True),
        counter("numBytesIn", lambda: 0, none, has_rate=True),
        counter("numBytesOut", lambda: 0, none, has_rate=True),
        gauge("currentOutputWatermark", lambda: node.counts.watermark_out),
    )
    if inputs:
        registry.add(gauge("currentInputWatermark", lambda: lowest_watermark(node, inputs)))
    for index in range(inputs if inputs > 1 else 0):
        registry.add(
            gauge(
                f"currentInput{index + 1}Watermark",
                partial(node.counts.watermarks_in.get, index, MIN_WATERMARK),
            )
        )
    if node.operator.drops_late_records:
        registry.add(counter("numLateRecordsDropped", lambda: node.late_records_dropped.count))


def lowest_watermark(node: ChainNode, inputs: int) -> int:
    """The lowest of the last watermarks of all inputs; -2^63 before each has had one."""
    found = list(node.counts.watermarks_in.values())
    return min(found) if len(found) >= inputs else MIN_WATERMARK
