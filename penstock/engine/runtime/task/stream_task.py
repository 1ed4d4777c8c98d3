"""StreamTask: input -> chain -> result partitions, one limited step at a time.

Source: Flink StreamTask, StreamInputProcessor, MailboxDefaultAction. Single-threaded: every method runs on
the task's mailbox thread. The host does the waiting.

A step spends at most `max_step_ns` in user code (slices adapt to that) and then returns, so that mails, timers,
flushes and cancellation have their turn. Timers fire only between slices, when no operator of the chain is
in the middle of a batch, so what an operator emitted before its timer stays before it downstream.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.engine.model.checkpoints import CheckpointType
from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.checkpoint.subtask import Completed, Notification, SubtaskCheckpoints
from penstock.engine.runtime.elements import (
    MIN_WATERMARK,
    Batch,
    CancelCheckpointMarker,
    CheckpointBarrier,
    ColumnBatch,
    Element,
    EndOfData,
    RowBatch,
    Tagged,
    Watermark,
)
from penstock.engine.runtime.state.snapshot import OperatorSnapshot
from penstock.engine.runtime.task.chain import OperatorChain, Routed, column_cuts
from penstock.engine.runtime.task.input_processor import InputStatus
from penstock.engine.runtime.task.outputs import OutputWriter, TaskOutputs
from penstock.engine.runtime.task.slices import Slices, TaskTiming


class TaskInput(Protocol):
    """Where the chain's elements come from: gates or a source."""

    is_source: bool

    @property
    def inputs(self) -> int:
        """The number of logical inputs."""
        ...

    def poll(self) -> tuple[int, Sequence[Element]] | None: ...
    def poll_priority(self) -> tuple[int, Sequence[Element]] | None:
        """Barriers that overtake the task's current work, or other elements to be read in their turn; None: nothing overtakes."""
        ...

    @property
    def held(self) -> Sequence[tuple[int, Element]]:
        """Elements that were read and not given out yet."""
        ...

    @property
    def has_read_all(self) -> bool:
        """Whether no record is on its way to this task: what is left is `held`, or in the task. Always true for a source, which keeps its
        position.
        """
        ...

    @property
    def is_finished(self) -> bool: ...
    @property
    def records_in(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """The synchronous part of a checkpoint. `operators`: state by uid. `in_hand`: records that were read and not yet processed, by
    input; they come first after a restore. They are also in `operators`, as a list state of the head. `sync_ns`: how long it took.
    `is_at_end`: the operators have finished.
    """

    barrier: CheckpointBarrier
    operators: dict[str, OperatorSnapshot]
    in_hand: tuple[tuple[int, Batch | Tagged], ...]
    sync_ns: int = 0
    is_at_end: bool = False


TakeSnapshot: TypeAlias = Callable[[TaskSnapshot], None]


class StreamTask:
    """The loop body of one attempt. `has_ended_data`: its operators finish or have finished. `is_done`: it has ended, and takes no
    more checkpoints.
    """

    def __init__(
        self,
        chain: OperatorChain,
        task_input: TaskInput,
        outputs: Sequence[OutputWriter],
        timing: TaskTiming,
        checkpoints: SubtaskCheckpoints | None = None,
        on_snapshot: TakeSnapshot | None = None,
    ) -> None:
        """`checkpoints`: decides which it takes and when; None: it takes none. `on_snapshot`: gets its snapshots; None: it makes none."""
        self.chain = chain
        self.input = task_input
        self.outputs = outputs
        self.checkpoints = SubtaskCheckpoints() if checkpoints is None else checkpoints
        self._on_snapshot = on_snapshot
        self._out = TaskOutputs(outputs, timing.clock_ns, timing.buffer_timeout_ns)
        self._timing = timing
        self._clock_ns = timing.clock_ns
        self.slices = Slices(timing, self._out, column_cuts(chain))
        self._inbox: deque[tuple[int, Element]] = deque()
        self._current: Iterator[Routed] | None = None
        self._ended_inputs: set[int] = set()
        self._watermarks: dict[int, int] = {}
        self._has_priority = False
        self._has_fired = False
        self._is_drained = True
        self.has_ended_data = False
        self.is_done = False

    def process_input(self) -> InputStatus:
        """The default action: run until the step's time is over, or nothing can be done.

        Returns MORE_AVAILABLE also if an output has no room; call again when it has.
        """
        deadline = self._clock_ns() + self._timing.max_step_ns
        while not self.is_done:
            if self._current is None and self.checkpoints.hold.is_held:
                self._out.flush()
                return InputStatus.NOTHING_AVAILABLE
            if self._has_priority and self._current is None:
                self._begin_priority()
            if not self._out.is_available and not self.checkpoints.hold.is_replaced:
                # Consumers of other outputs need not wait for the slow one.
                self._out.flush_when_due()
                return InputStatus.MORE_AVAILABLE
            if self._current is None and not self._begin_next():
                self._out.flush()
                if self.chain.takes_input:
                    self.slices.rest_for_now()
                return InputStatus.NOTHING_AVAILABLE
            if not self._advance(deadline):
                self._out.flush_when_due()
                return InputStatus.MORE_AVAILABLE
        return InputStatus.END_OF_INPUT

    @property
    def buffer_timeout_ns(self) -> int:
        return self._out.timeout_ns

    @property
    def is_output_available(self) -> bool:
        """Whether outputs have room."""
        return self._out.is_available

    def notice_priority(self) -> None:
        """An overtaking barrier has come, or an alignment has timed out."""
        self._has_priority = True
        self._out.overdraw(is_needed=True)

    def next_timer_ms(self) -> int | None:
        """When `process_input` has to be called even without input, on the `now_ms` clock."""
        return None if self.checkpoints.hold.is_held else self.chain.next_timer_ms()

    @property
    def watermark_ms(self) -> int:
        """The lowest of the inputs' last watermarks, -2^63 before the first one. For a source the last one that it made."""
        if len(self._watermarks) < self.input.inputs:
            return MIN_WATERMARK
        return min(self._watermarks.values())

    @property
    def reported_watermark_ms(self) -> int:
        """As `watermark_ms`. In the chain of a source a later operator may make watermarks: then the last one of these."""
        if not self.input.is_source:
            return self.watermark_ms
        return max([self.watermark_ms, *(n.counts.watermark_out for n in self.chain.nodes)])

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Trigger a checkpoint in a task whose producers have all ended. A source that has to stop
        with it has been notified before.

        It does not wait for room in the outputs. If a source stops without draining, the records in
        hand belong to the attempt that starts from the savepoint: with a slow function they would
        take long.
        """
        self.checkpoints.trigger(barrier)
        has_ended = self.input.is_finished or bool(self._ended_inputs)
        is_stop = barrier.options.type is CheckpointType.STOP_SUSPEND
        if is_stop and self.input.is_source and not has_ended:
            self.slices.keep_all(self._inbox)
            self._inbox.clear()
        self.notice_priority()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """All tasks have acknowledged the checkpoint, and it is written."""
        self._notify(self.checkpoints.on_complete(checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int, latest_completed: int) -> None:
        """The checkpoint was aborted. `latest_completed` -1: there is none."""
        self._notify(self.checkpoints.on_abort(checkpoint_id, latest_completed))

    def _notify(self, notifications: Iterable[Notification]) -> None:
        for one in notifications:
            if isinstance(one, Completed):
                self.chain.notify_checkpoint_complete(one.checkpoint_id)
            else:
                self.chain.notify_checkpoint_aborted(one.checkpoint_id)

    def restore_in_hand(self, elements: Iterable[tuple[int, Element]]) -> None:
        """Add elements that a snapshot had as read and not yet processed. Call before the first step."""
        self._inbox.extend(elements)

    def _advance(self, deadline: int) -> bool:
        """Run the current generator. False: the time is over before it ends."""
        write = self._out.write
        assert self._current is not None
        self.slices.resume()
        for routed in self._current:
            if routed is not None and not write(*routed):
                self.slices.pause(self._clock_ns())
                return False
            if (now := self._clock_ns()) >= deadline:
                self.slices.pause(now)
                return False
        self._current = None
        now = self._clock_ns()
        self.slices.end(now)
        return now < deadline

    def _begin_priority(self) -> None:
        if self._begin_trigger():
            return
        while (polled := self.input.poll_priority()) is not None:
            input_index, elements = polled
            if isinstance(elements[0], (CheckpointBarrier, CancelCheckpointMarker)):
                self._current = self._overtaking(elements)
                break
            self._inbox.extend((input_index, element) for element in elements)
        # Only events are still to come from a source that has stopped, and they need no room.
        is_ending = self.slices.kept is not None and self.checkpoints.is_triggered
        self._has_priority = self._current is not None or is_ending
        self._out.overdraw(is_needed=self._has_priority)

    def _overtaking(self, elements: Sequence[Element]) -> Iterator[Routed]:
        """Process barriers and markers before the current batch."""
        for element in elements:
            if isinstance(element, CheckpointBarrier):
                yield from self._checkpoint(element)
            else:
                assert isinstance(element, CancelCheckpointMarker), "only barriers overtake"
                self.checkpoints.give_up(element.checkpoint_id)
                yield from self._out.to_all(element)

    def _begin_next(self) -> bool:
        """Choose what runs next: due timers, a checkpoint, the rest of the current batch, the next element."""
        if self.checkpoints.hold.is_replaced and not self.has_ended_data:
            self._current = self._leave()
            return True
        if self._begin_timers() or self._begin_trigger():
            return True
        if self.checkpoints.hold.is_replaced or not self.chain.takes_input:
            return self.checkpoints.hold.is_replaced and self._begin_end()
        # The end of the data is processed before later elements: a later checkpoint must see
        # finished operators.
        is_at_end = self._ended_inputs and self._is_at_end and not self.has_ended_data
        is_rest = not self.slices.is_empty
        if not is_rest and not self._inbox and (is_at_end or not self._poll()):
            return self._begin_end()
        if is_rest:
            self._current = self._into_chain(*self.slices.next())
            return True
        self._begin_element(*self._inbox.popleft())
        return True

    def _begin_timers(self) -> bool:
        """Input has its turn afterwards, so that timers which set timers cannot starve it."""
        due = self.chain.next_timer_ms()
        is_due = due is not None and due <= self._timing.now_ms()
        self._has_fired = is_due and not self._has_fired
        if self._has_fired:
            self._current = self.chain.fire_timers(self._timing.now_ms())
        return self._has_fired

    def _begin_trigger(self) -> bool:
        barrier = self.checkpoints.next_trigger(has_read_all=self.input.has_read_all)
        if barrier is None:
            return False
        self._current = self._triggered(barrier)
        return True

    def _begin_element(self, input_index: int, element: Element) -> None:
        if isinstance(element, (RowBatch, ColumnBatch)):
            if input_index in self._ended_inputs:
                raise EngineBug(f"input {input_index} has ended, but {len(element)} records came")
            self._current = self._into_chain(*self.slices.take(input_index, element))
        elif isinstance(element, CheckpointBarrier):
            self._current = self._checkpoint(element)
        elif isinstance(element, CancelCheckpointMarker):
            self.checkpoints.give_up(element.checkpoint_id)
            self._current = self._out.to_all(element)
        elif isinstance(element, EndOfData):
            self._ended_inputs.add(input_index)
            self._is_drained = self._is_drained and element.drain
            is_draining = element.drain and not self.input.is_source
            self._current = self.chain.end_input(input_index) if is_draining else iter(())
        else:
            if isinstance(element, Watermark):
                self._watermarks[input_index] = element.timestamp_ms
            self._current = self._into_chain(input_index, element)

    def _poll(self) -> bool:
        polled = self.input.poll()
        if polled is None:
            return False
        input_index, elements = polled
        self._inbox.extend((input_index, element) for element in elements)
        return bool(self._inbox)

    def _into_chain(self, input_index: int, element: Element) -> Iterator[Routed]:
        if self.input.is_source:
            return self.chain.emit_from_head(element)
        return self.chain.feed(element, input_index)

    def _checkpoint(self, barrier: CheckpointBarrier) -> Iterator[Routed]:
        """Emit what operators send ahead, then the barrier to all outputs, then take the snapshot. Nothing is
        processed in between.
        """
        if not self.checkpoints.is_news(barrier):
            return
        if not self.checkpoints.begin(barrier):
            yield from self._out.to_all(CancelCheckpointMarker(barrier.checkpoint_id))
            return
        yield from self.chain.prepare_snapshot_pre_barrier(barrier.checkpoint_id)
        yield from self._out.to_all(barrier)
        if self._on_snapshot is not None:
            started_ns = self._clock_ns()
            in_hand = self.slices.in_hand((*self._inbox, *self.input.held))
            operators = self.chain.snapshot(in_hand)
            sync_ns = self._clock_ns() - started_ns
            has_finished = self.has_ended_data and self._is_drained
            is_at_end = has_finished or self.chain.begins_finished
            self._on_snapshot(TaskSnapshot(barrier, operators, in_hand, sync_ns, is_at_end))
        self.checkpoints.hold.on_taken(barrier)

    def _triggered(self, barrier: CheckpointBarrier) -> Iterator[Routed]:
        """Take a checkpoint that was triggered from outside, then run the actions that waited for its snapshot."""
        yield from self._checkpoint(barrier)
        self.checkpoints.on_taken()

    # ------------------------------------------------------------------ the end

    @property
    def _is_at_end(self) -> bool:
        return len(self._ended_inputs) >= self.input.inputs or self.input.is_finished

    def _begin_end(self) -> bool:
        """There is no element to process. First the data ends; barriers may follow; then the partitions end."""
        if not self.has_ended_data:
            if not self._is_at_end or not self.chain.is_drained:
                return False
            self._current = self._end_data()
            return True
        is_over = self.input.is_finished and self.checkpoints.may_finish
        if not (is_over or self.checkpoints.hold.is_replaced) or self.chain.has_put_off:
            return False
        self._current = self._end_partitions()
        return True

    def _end_data(self) -> Iterator[Routed]:
        """Finish the operators, unless the job was only stopped, and notify consumers that no more
        records come.
        """
        self.has_ended_data = True
        if self._is_drained:
            yield from self.chain.finish()
        yield from self._out.to_all(EndOfData(drain=self._is_drained))
        self.chain.end_data()
        self.checkpoints.on_end_of_data()

    def _leave(self) -> Iterator[Routed]:
        """The next generation continues from the snapshot: nothing is finished, and the records in
        hand belong to that generation.
        """
        self.has_ended_data = True
        yield from self._out.to_all(EndOfData(drain=False))
        self.chain.end_data()

    def _end_partitions(self) -> Iterator[Routed]:
        self._out.finish()
        self.is_done = True
        yield from ()  # A generator, like all other work
