"""OperatorChain: the operators of one task as a tree, run one batch at a time; what is converted before a call, and what
becomes of an error.

Operators return what they emit, so the chain is a generator. It can be left at any `yield` (time is up, an output is
full) and resumed. An operator sees a whole batch before the next one does. Does not know channels: it yields `(output
index, element)`, and None where it may be left.

Source: Flink OperatorChain, ChainingOutput, RecordWriterOutput, StreamTask.handleAsyncException. Differs: as described
above; an error is text that names operator, record and line.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

from penstock.engine.model.errors import EngineBug
from penstock.engine.model.graph.chain import ChainedOperator, ChainSpec, ChainTarget
from penstock.engine.model.messages import LatencySummary
from penstock.engine.runtime.codecs.convert import enforce, enforce_where_it_fits, to_columns
from penstock.engine.runtime.elements import (
    MAX_WATERMARK,
    Batch,
    ColumnBatch,
    Element,
    EndOfData,
    EndOfKeys,
    LatencyMarker,
    RowBatch,
    Tagged,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.runtime.interruption import UNWATCHED, OperatorCalls
from penstock.engine.runtime.operator import Accepts, Emitted, Operator, OperatorContext
from penstock.engine.runtime.records.dead_letters import PoisonRecords
from penstock.engine.runtime.records.frozen import Dumps, plain_dumps
from penstock.engine.runtime.records.output_copies import RecordSharing
from penstock.engine.runtime.records.parts import in_parts
from penstock.engine.runtime.row_functions.runner import ColumnRows
from penstock.engine.runtime.state.snapshot import OperatorSnapshot, check_all_taken
from penstock.engine.runtime.task.chain_node import (
    ChainNode,
    OperatorTimer,
    context_in_chain,
    node_of,
)
from penstock.engine.runtime.task.latency import LatencySettings, LatencyStats
from penstock.engine.runtime.task.slices import ColumnCuts
from penstock.engine.runtime.task.user_errors import PASSED_ON, user_code_error
from penstock.engine.runtime.user_metrics import UserMetrics

Routed: TypeAlias = "tuple[int, Element] | None"


@dataclass(frozen=True, slots=True)
class ChainMetrics:
    """What a chain measures. `is_for_functions`: whether functions get a group to register metrics in."""

    latency: LatencySettings = field(default_factory=LatencySettings)
    is_for_functions: bool = True


_METRICS: Final = ChainMetrics()


class OperatorChain:
    """The operators of one attempt. Built once per attempt, on the mailbox thread. `nodes`: with what is counted of them, for any thread to read."""

    begins_finished: ClassVar[bool] = False
    """Whether its operators had finished before this attempt, so that the chain has none."""

    def __init__(
        self,
        spec: ChainSpec,
        clock_ms: Callable[[], int],
        calls: OperatorCalls = UNWATCHED,
        choose: Callable[[int], int] = lambda _count: 0,
        metrics: ChainMetrics = _METRICS,
        dumps: Dumps = plain_dumps,
        fresh_head: Callable[[], Operator] | None = None,
    ) -> None:
        """`calls`: gets a call when an operator's code begins and ends. `choose(n)`: picks one of n
        outputs at random, for a latency marker. `dumps`: pickles objects in snapshots.
        `fresh_head`: makes another head for the next keys of a BATCH job.
        """
        self.spec = spec
        self._dumps = dumps
        self._calls, self._choose = calls, choose
        self._clock_ms, self._latency = clock_ms, metrics.latency
        self._has_ended_data = False
        self._fresh_head = fresh_head
        self.user_metrics = UserMetrics(metrics.is_for_functions)
        self._sharing = RecordSharing(spec)
        self.nodes = [node_of(spec, index, clock_ms) for index in range(len(spec.operators))]

    @property
    def head(self) -> Operator:
        return self.nodes[0].operator

    @property
    def operators(self) -> list[Operator]:
        """The operators, head to tail."""
        return [node.operator for node in self.nodes]

    @property
    def takes_rows(self) -> bool:
        """Whether some operator loops over Python objects, so that long batches must be sliced."""
        return any(node.operator.accepts is Accepts.ROWS for node in self.nodes)

    @property
    def is_in_record(self) -> bool:
        """Whether the output of a record is not complete, so that timers and barriers must wait."""
        return any(node.operator.is_in_record for node in self.nodes)

    @property
    def takes_input(self) -> bool:
        """Whether the head can be fed."""
        return self.nodes[0].operator.takes_input

    @property
    def is_drained(self) -> bool:
        """Whether nothing is outstanding at the head, so that `finish` may run."""
        return self.nodes[0].operator.is_drained

    @property
    def has_put_off(self) -> bool:
        """Whether an operator has to try something again before the task may end."""
        return any(node.operator.has_put_off for node in self.nodes)

    @property
    def latencies(self) -> tuple[LatencySummary, ...]:
        """The latencies of all operators that saw a latency marker."""
        return tuple(itertools.chain.from_iterable(node.latencies() for node in self.nodes))

    @property
    def late_records_dropped(self) -> int:
        return sum(node.late_records_dropped.count for node in self.nodes)

    def open(
        self, context_for: Callable[[ChainedOperator, OperatorTimer], OperatorContext]
    ) -> None:
        """Open all operators, tail to head."""
        self._context_for = context_for
        for node in reversed(self.nodes):
            self._open(node)

    def _open(self, node: ChainNode) -> None:
        given = self._context_for(node.spec, node.timer)
        metrics = self.user_metrics.group_of(node.spec.uid, node.spec.name)
        context = context_in_chain(node, given, metrics, self._calls, self._dumps)
        self._guard(node, partial(node.operator.open, context))
        if node.restored is not None:
            check_all_taken(node.spec.uid, type(node.operator).__name__, node.restored)
            node.restored = None

    def close(self) -> None:
        """Close all operators, tail to head, even if some fail. The first error is raised at the end.

        This also holds when one is interrupted by a cancel, because the resources of the others must be released too.
        """
        first: BaseException | None = None
        for node in reversed(self.nodes):
            try:
                if node.poison is not None:
                    node.poison.close()
                self._guard(node, node.operator.close)
            except BaseException as error:
                first = first or error
        if first is not None:
            raise first

    # ------------------------------------------------------------------ elements through the tree

    def feed(self, element: Element, input_index: int = 0) -> Iterator[Routed]:
        """Process an element in the head."""
        is_end = isinstance(element, EndOfKeys)
        return self.end_keys() if is_end else self._feed(0, element, input_index)

    def emit_from_head(self, element: Element) -> Iterator[Routed]:
        """Process an element that a source head made."""
        head = self.nodes[0]
        if head.poison is None:
            return self._route(head, element)
        parts = with_letters(head, head.poison, element)
        return itertools.chain.from_iterable(self._route(head, part) for part in parts)

    def end_data(self) -> None:
        """Nothing is emitted any more: from now on only operators that have put something off have timers."""
        self._has_ended_data = True

    def next_timer_ms(self) -> int | None:
        first: int | None = None
        for node in self._timed_nodes():
            due = node.timer.due_ms
            if due is not None and (first is None or due < first):
                first = due
        return first

    def fire_timers(self, now_ms: int) -> Iterator[Routed]:
        """Fire all due processing-time timers, head first."""
        for node in self._timed_nodes():
            if node.timer.fires_at(now_ms):
                fire = partial(node.operator.on_processing_time, now_ms)
                yield from self._run(node, fire)

    def _timed_nodes(self) -> Sequence[ChainNode]:
        if not self._has_ended_data:
            return self.nodes
        return [node for node in self.nodes if node.operator.has_put_off]

    def end_input(self, input_index: int) -> Iterator[Routed]:
        """A logical input of the head has no more records."""
        head = self.nodes[0]
        yield from self._run(head, partial(head.operator.end_input, input_index))

    def end_keys(self) -> Iterator[Routed]:
        """In a BATCH job: the head ends for the keys so far, as at the end of its input. A fresh head takes the keys that follow."""
        head = self.nodes[0]
        yield from self._run(head, partial(_end_time, head.operator))
        yield from self._run(head, partial(head.operator.end_input, 0))
        yield from self._run(head, head.operator.finish)
        self._guard(head, head.operator.close)
        assert self._fresh_head is not None, "keys end in BATCH jobs only"
        head.operator = self._fresh_head()
        self._open(head)

    def finish(self) -> Iterator[Routed]:
        """All inputs have ended: each operator emits what it still holds, head to tail."""
        for index, node in enumerate(self.nodes):
            if index > 0:
                yield from self._run(node, partial(node.operator.end_input, 0))
            yield from self._run(node, node.operator.finish)

    # ------------------------------------------------------------------ checkpoints

    def prepare_snapshot_pre_barrier(self, checkpoint_id: int) -> Iterator[Routed]:
        """Emit what must go out before the barrier, head to tail."""
        for node in self.nodes:
            prepare = node.operator.prepare_snapshot_pre_barrier
            yield from self._run(node, partial(prepare, checkpoint_id))

    def restore(self, states: Mapping[str, OperatorSnapshot]) -> None:
        """Restore operators by their uids. Call before `open`."""
        for node in self.nodes:
            state = states.get(node.spec.uid)
            if state is not None:
                node.restored = state
                self._guard(node, partial(node.operator.restore, state))

    def snapshot(self, in_hand: Sequence[tuple[int, Element]] = ()) -> dict[str, OperatorSnapshot]:
        """The frozen state of each operator that has any, by its uid. Tail to head; no element may be in progress.

        `in_hand`: (input, element) of elements that were read and not yet processed: state of the head.
        """
        states: dict[str, OperatorSnapshot] = {}

        def take(node: ChainNode) -> None:
            state = node.operator.snapshot()
            if node is self.nodes[0]:
                node.operator.add_in_hand(state, in_hand)
            if state:
                states[node.spec.uid] = state.freeze(self._dumps, node.operator.state_keys)

        for node in reversed(self.nodes):
            self._guard(node, partial(take, node))
        return states

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify all operators, tail to head."""
        for node in reversed(self.nodes):
            self._guard(node, partial(node.operator.notify_checkpoint_complete, checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify all operators, tail to head."""
        for node in reversed(self.nodes):
            self._guard(node, partial(node.operator.notify_checkpoint_aborted, checkpoint_id))

    # ------------------------------------------------------------------ one element, one operator

    def _feed(self, index: int, element: Element, input_index: int) -> Iterator[Routed]:
        node = self.nodes[index]
        operator = node.operator
        if isinstance(element, (RowBatch, ColumnBatch)):
            node.counts.records_in += len(element)
            return self._run(node, lambda: processed(node, element, input_index))
        if isinstance(element, Watermark):
            node.counts.watermarks_in[input_index] = element.timestamp_ms
            return self._run(node, lambda: operator.process_watermark(element, input_index))
        if isinstance(element, WatermarkStatus):
            return self._run(node, lambda: operator.process_status(element, input_index))
        if isinstance(element, LatencyMarker):
            if node.latency is None:
                node.latency = LatencyStats(self._latency.granularity, self._latency.history)
            node.latency.report(element, self._clock_ms())
            return self._run(node, lambda: operator.process_latency_marker(element))
        raise EngineBug(f"{element!r} is not an element that operators process")

    def _run(self, node: ChainNode, call: Callable[[], Emitted]) -> Iterator[Routed]:
        emitting: Emitting | None = None
        while True:
            emitting, emitted = next_of(node, self._calls, call, emitting)
            if node.poison is not None:
                for one in with_letters(node, node.poison, emitted):
                    yield from self._route(node, one)
            elif emitted is not None and emitted is not END:
                yield from self._route(node, emitted)
            if emitted is END:
                return
            if emitted is None:
                yield None

    def _route(self, node: ChainNode, emitted: Element | Tagged) -> Iterator[Routed]:
        if isinstance(emitted, Tagged):
            node.counts.records_out += len(emitted.batch)
            side = node.sides.get(emitted.tag)
            if side is None:
                return
            copies = self._sharing.copies(emitted.batch, side.outputs, side.targets)
            for output in side.outputs:
                yield output, next(copies)
            for target in side.targets:
                element = enforced(node, next(copies), target, self.nodes[target.operator_index])
                yield from self._feed(target.operator_index, element, 0)
            return
        if not isinstance(emitted, (RowBatch, ColumnBatch)):
            if isinstance(emitted, LatencyMarker):
                yield from self._route_marker(node, emitted)
                return
            if not _announces(node, emitted):
                return
            yield from self._to_tagged(node, emitted)
        elif rows := len(emitted):
            node.counts.records_out += rows
        else:
            return
        copies = self._sharing.copies(emitted, node.outputs, node.targets)
        for output in node.outputs:
            yield output, next(copies)
        for target in node.targets:
            own, consumer = next(copies), self.nodes[target.operator_index]
            is_kept = node.operator.keeps_records and not node.has_misfits
            element = own if is_kept else enforced(node, own, target, consumer)
            yield from self._feed(target.operator_index, element, 0)

    def _route_marker(self, node: ChainNode, marker: LatencyMarker) -> Iterator[Routed]:
        """Send the marker to one of all outputs: copies to each would measure the copies."""
        sides = node.sides.values()
        outputs = [*node.outputs, *(place for side in sides for place in side.outputs)]
        targets = [*node.targets, *(target for side in sides for target in side.targets)]
        count = len(outputs) + len(targets)
        if not count:
            return
        chosen = self._choose(count) if count > 1 else 0
        if chosen < len(outputs):
            yield outputs[chosen], marker
        else:
            yield from self._feed(targets[chosen - len(outputs)].operator_index, marker, 0)

    def _to_tagged(self, node: ChainNode, event: Element) -> Iterator[Routed]:
        """Send watermarks and statuses to side outputs too."""
        for side in node.sides.values():
            for output in side.outputs:
                yield output, event
        for side in node.sides.values():
            for target in side.targets:
                yield from self._feed(target.operator_index, event, 0)

    def _guard(self, node: ChainNode, call: Callable[[], None]) -> None:
        guarded(node, self._calls, call)


def column_cuts(chain: OperatorChain) -> ColumnCuts:
    """Whether the task of this chain may cut column batches."""
    if chain.takes_rows:
        return ColumnCuts.ALWAYS
    takes_columns = any(operator.accepts is Accepts.COLUMNS for operator in chain.operators)
    return ColumnCuts.NEVER if takes_columns else ColumnCuts.FOR_OUTPUT


def _end_time(operator: Operator) -> Emitted:
    """Return the effects of the last watermark, without the watermark itself: for downstream
    operators, time does not end.
    """
    emitted = operator.process_watermark(Watermark(MAX_WATERMARK), 0)
    return (one for one in emitted if not isinstance(one, Watermark))


def _announces(node: ChainNode, event: Element) -> bool:
    """Whether the event may pass: no watermark while IDLE is announced, and a status only when it changes."""
    if isinstance(event, Watermark):
        if not node.is_announced_idle:
            node.counts.watermark_out = event.timestamp_ms
        return not node.is_announced_idle
    if isinstance(event, WatermarkStatus):
        if event.idle == node.is_announced_idle:
            return False
        node.is_announced_idle = event.idle
        return True
    return not isinstance(event, EndOfData)


END: Final = object()
"""Stands for the end of what a call emits."""
Emitting: TypeAlias = "Iterator[Element | Tagged | None]"
_COMPLETE: Final[tuple[type[Any], ...]] = (type(iter(())), type(iter([])))
"""What needs no more of the operator's code to go on."""


def guarded(node: ChainNode, calls: OperatorCalls, call: Callable[[], None]) -> None:
    """Make a call into an operator that emits nothing. Raises: UserCodeError for whatever it raises."""
    calls.entered(node.spec.name)
    try:
        call()
    except PASSED_ON:
        raise
    except BaseException as error:
        raise user_code_error(node.spec, node.operator, error) from error
    finally:
        calls.left()


def next_of(
    node: ChainNode, calls: OperatorCalls, call: Callable[[], Emitted], emitting: Emitting | None
) -> tuple[Emitting, Any]:
    """Begin a call into an operator, or go on with it, up to what it emits next, or to END.

    Whatever is raised in here was raised by the operator: it is no GeneratorExit of a chain that is dropped.
    Args: emitting: what the former call returned first; None: the call begins.
    Raises: UserCodeError for whatever the operator raises.
    """
    if isinstance(emitting, _COMPLETE):
        return emitting, next(emitting, END)
    calls.entered(node.spec.name)
    try:
        if emitting is None:
            emitting = iter(call())
        return emitting, next(emitting, END)
    except PASSED_ON:
        raise
    except BaseException as error:
        raise user_code_error(node.spec, node.operator, error) from error
    finally:
        calls.left()


def with_letters(
    node: ChainNode, poison: PoisonRecords, emitted: Any
) -> Iterator[Element | Tagged]:
    """What an operator that puts records aside has emitted, with its dead letters. A result that does not have the declared type, of the
    main output or of a side output, is put aside too.
    """
    letters = poison.take()
    if letters is not None:
        yield letters
    if emitted is None or emitted is END:
        return
    tag, batch = (emitted.tag, emitted.batch) if isinstance(emitted, Tagged) else (None, emitted)
    side = None if tag is None else node.sides.get(tag)
    kind: Any = node.spec.output_type if tag is None else side and side.element_type
    if kind is None or not isinstance(batch, RowBatch):
        yield emitted
        return
    for part in in_parts(lambda part: _of_type(part, kind), batch, poison.add):
        yield part if tag is None else Tagged(tag, part)
    letters = poison.take()
    if letters is not None:
        yield letters


def processed(node: ChainNode, batch: Batch, input_index: int) -> Emitted:
    """Convert, then process. An error in the conversion is reported for this operator, with the line that built it."""
    at_once = node.operator.records_at_once
    if at_once is None or len(batch) <= at_once or isinstance(batch, RowBatch):
        return _processed(node, batch, input_index)
    return _one_after_the_other(node, batch, input_index, at_once)


def _one_after_the_other(
    node: ChainNode, batch: ColumnBatch, input_index: int, at_once: int
) -> Emitted:
    for start in range(0, len(batch), at_once):
        part = batch.slice(start, min(start + at_once, len(batch)))
        yield from _processed(node, part, input_index)


def _processed(node: ChainNode, batch: Batch, input_index: int) -> Emitted:
    if node.poison is not None:
        return _processed_parts(node, node.poison, batch, input_index)
    try:
        converted = _converted(batch, node.operator, node.input_types, input_index)
    except PASSED_ON:
        raise
    except BaseException as error:
        # No record is named: the operator's current one belongs to an earlier batch.
        raise user_code_error(node.spec, None, error) from error
    return node.operator.process(converted, input_index)


def enforced(
    producer: ChainNode, element: Element, target: ChainTarget, consumer: ChainNode
) -> Element:
    """Apply the declared type inside a chain too: check, round and name as its coder would. Between two functions, values that do not
    fit pass.
    """
    if target.element_type is None or not isinstance(element, RowBatch):
        return element
    is_coded = not (producer.operator.calls_function and consumer.operator.calls_function)
    try:
        if is_coded:
            return enforce(element, target.element_type)
        return _fitting(element, target.element_type, consumer)
    except PASSED_ON:
        raise
    except BaseException as error:
        # No record is named: the operator's current one is the batch's last, whichever was wrong.
        raise user_code_error(producer.spec, None, error) from error


def _fitting(batch: RowBatch, kind: Any, consumer: ChainNode) -> RowBatch:
    """Return the batch for a chained function. The consumer remembers whether it has got values
    that do not fit.
    """
    fitting, has_misfits = enforce_where_it_fits(batch, kind)
    consumer.has_misfits |= has_misfits
    return fitting


def _processed_parts(
    node: ChainNode, poison: PoisonRecords, batch: Batch, input_index: int
) -> Emitted:
    """Convert what can be converted, and process it."""
    operator, types = node.operator, node.input_types

    def converted(part: Batch) -> Batch:
        made = _converted(part, operator, types, input_index)
        if isinstance(made, ColumnRows):
            made.decode_doubtful()
        return made

    for part in in_parts(converted, batch, poison.add):
        yield from operator.process(part, input_index)


def _of_type(batch: Batch, kind: Any) -> Batch:
    """The batch, if its records have the type, rounded and named as the type's coder does it. Raises: as `enforce`."""
    return enforce(batch, kind) if isinstance(batch, RowBatch) else batch


def _converted(batch: Batch, operator: Operator, types: Sequence[Any], input_index: int) -> Batch:
    """The batch in the form that the operator takes. The only conversion inside a task."""
    declared = types[input_index] if input_index < len(types) else None
    accepts = operator.accepts
    if isinstance(batch, ColumnBatch):
        if accepts is Accepts.ROWS:
            return operator.rows_from(batch, declared, input_index)
        return batch
    return to_columns(batch, declared) if accepts is Accepts.COLUMNS else batch
