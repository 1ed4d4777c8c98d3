"""PipelinedSubpartition against a plain model of Flink's
(docs/spec/exchange.md#queue-of-a-subpartition, #priority-and-barriers-in-a-queue), and between two
real threads.
"""

import threading

from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.model.errors import EngineBug
from penstock.engine.runtime.elements import EndOfPartition, RowBatch, Watermark
from penstock.engine.runtime.network.partition.result_partition import (
    PartitionHooks,
    pipelined_partition,
)
from tests.tools.runtime.partitions import (
    Barrier,
    Checkpoints,
    ViewListener,
    pipelined,
    result_partition_id,
)


class Buffer:
    """A BufferConsumer: `unread` bytes, as numbers."""

    def __init__(self, kind, unread=(), *, is_finished=True) -> None:
        self.kind = kind
        self.unread = list(unread)
        self.is_finished = is_finished


class Model:
    """The rules of docs/spec/exchange.md, one after another; nothing of the product's."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.priorities = 0
        self.backlog_count = 0
        self.flush_requested = self.is_finished = self.is_blocked = False
        self.sequence = 0

    def finished_buffers(self) -> int:
        if len(self.buffers) == 1 and self.buffers[0].is_finished:
            return 1
        return max(0, len(self.buffers) - 1)

    def should_notify(self) -> bool:
        return not self.flush_requested and not self.is_blocked and self.finished_buffers() == 1

    def add(self, buffer, *, is_last=False) -> tuple[bool, bool] | None:
        """Whether data and whether priority is told; None: refused."""
        if self.is_finished:
            return None
        for earlier in self.buffers:
            earlier.is_finished = True
        is_told = False
        if buffer.kind == "priority":
            self.buffers.insert(self.priorities, buffer)
            self.priorities += 1
            is_told = self.priorities == 1 and not self.is_blocked
        else:
            self.buffers.append(buffer)
        self.backlog_count += buffer.kind == "data"
        self.is_finished = is_last
        return is_last or self.should_notify(), is_told

    def flush(self) -> bool:
        if not self.buffers or self.flush_requested:
            return False
        if len(self.buffers) > 1:
            self.flush_requested = True
            return False
        only = self.buffers[0]
        if only.kind == "data" and not only.unread:
            return False
        self.flush_requested = True
        return not self.is_blocked

    def poll(self):
        if self.is_blocked:
            return None
        if not self.buffers:
            self.flush_requested = False
        while self.buffers:
            head = self.buffers[0]
            taken, head.unread = head.unread, []
            if len(self.buffers) == 1:
                self.flush_requested = False
            if head.is_finished:
                self.buffers.pop(0)
                self.backlog_count -= head.kind == "data"
                self.priorities = max(0, self.priorities - 1)
            if head.kind != "data":
                self.is_blocked = head.kind == "blocking"
                return self.told(head.kind)
            if taken:
                return self.told(taken)
            if not head.is_finished:
                return None
        return None

    def told(self, what):
        self.sequence += 1
        return what, self.backlog(), self.next_kind(), self.sequence - 1

    def has_data(self) -> bool:
        return not self.is_blocked and (self.flush_requested or self.finished_buffers() > 0)

    def next_kind(self) -> str:
        if not self.has_data() or not self.buffers:
            return "NONE"
        kind = self.buffers[0].kind
        return {"data": "DATA", "priority": "PRIORITY_EVENT"}.get(kind, "EVENT")

    def backlog(self) -> int:
        if self.is_blocked or not self.buffers:
            return 0
        if self.flush_requested or self.is_finished or self.buffers[-1].kind != "data":
            return self.backlog_count
        return max(self.backlog_count - 1, 0)


EVENTS = {
    "event": Watermark(0),
    "blocking": Barrier(),
    "priority": Barrier(has_priority=True),
}
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.booleans(), st.integers(0, 2)),
        st.sampled_from([(word,) for word in (*EVENTS, "write", "seal", "flush", "poll", "poll", "resume", "end")]),
    ),
    max_size=40,
)  # fmt: skip


class Pair:
    """The product and the model, given the same."""

    def __init__(self) -> None:
        self.part = pipelined(output_state=Checkpoints())
        self.sub = self.part.subpartitions[0]
        self.listener = ViewListener()
        self.view = self.part.create_view(0, self.listener)
        self.model = Model()
        self.next_byte = 0

    def bytes(self, count) -> list[int]:
        self.next_byte += count
        return list(range(self.next_byte - count, self.next_byte))

    def told(self, action) -> tuple[bool, bool]:
        data, priorities = self.listener.data, len(self.listener.priorities)
        action()
        return self.listener.data > data, len(self.listener.priorities) > priorities

    def add(self, buffer, action, *, is_last=False) -> None:
        expected = self.model.add(buffer, is_last=is_last)
        assert self.told(action) == (expected or (False, False))

    def data(self, is_finished, count) -> None:
        values = self.bytes(count)
        buffer = Buffer("data", values, is_finished=is_finished)
        batch = RowBatch(list(values))
        self.add(buffer, lambda: self.sub.add_frame(batch, is_finished=is_finished))

    def write(self) -> None:
        """On into the buffer that is open, else into a new one."""
        model, values = self.model, self.bytes(1)
        if not model.is_finished and model.buffers and not model.buffers[-1].is_finished:
            model.buffers[-1].unread += values
            assert self.told(lambda: self.sub.write(RowBatch(values))) == (False, False)
        else:
            buffer = Buffer("data", values, is_finished=False)
            self.add(buffer, lambda: self.sub.write(RowBatch(list(values))))

    def seal(self) -> None:
        """The writer finishes its buffer: Flink tells nobody, we do what an `add` of it would."""
        if self.model.buffers:
            self.model.buffers[-1].is_finished = True
        self.sub.finish_tail()

    def flush(self) -> None:
        assert self.told(self.sub.flush) == (self.model.flush(), False)

    def resume(self) -> None:
        try:
            self.view.resume()
        except EngineBug:
            assert not self.model.is_blocked
        else:
            assert self.model.is_blocked
        self.model.is_blocked = False

    def end(self) -> None:
        if not self.model.is_finished:
            self.add(Buffer("event"), self.sub.finish, is_last=True)

    def poll(self) -> bool:
        expected, polled = self.model.poll(), self.view.poll()
        if polled is None:
            assert expected is None
            return False
        element = polled.element
        what = element.values if isinstance(element, RowBatch) else kind_of(element)
        assert (what, polled.backlog, polled.next.name, polled.sequence) == expected
        return True

    def check(self) -> None:
        model = self.model
        assert self.sub.backlog == model.backlog()
        assert self.view.is_available(has_credit=True) == (model.next_kind() != "NONE")
        is_event = model.next_kind() not in {"NONE", "DATA"}
        assert self.view.is_available(has_credit=False) == is_event


def kind_of(element) -> str:
    if isinstance(element, EndOfPartition):
        return "event"
    return next(kind for kind, event in EVENTS.items() if event == element)


@given(OPS)
def test_any_sequence_of_calls_gives_what_the_spec_says(ops):
    pair = Pair()
    for word, *arguments in ops:
        if word in EVENTS:
            event = EVENTS[word]
            pair.add(Buffer(word), lambda event=event: pair.sub.add(event))
        else:
            getattr(pair, word)(*arguments)
        pair.check()
    pair.end()
    while pair.poll() or pair.model.is_blocked:
        if pair.model.is_blocked:
            pair.resume()
        pair.check()


class Woken(ViewListener):
    """A consumer on a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.news = threading.Semaphore(0)

    def notify_data(self) -> None:
        self.news.release()


def test_between_two_threads_nothing_is_lost_and_nobody_waits_for_ever():
    rows, room = 50_000, threading.Semaphore(0)
    part = pipelined_partition(
        result_partition_id(), 1, 1 << 20, PartitionHooks(room.release), threading.Lock
    )
    listener, got = Woken(), []
    view = part.create_view(0, listener)

    def consume() -> None:
        while True:
            assert listener.news.acquire(timeout=30), "no news, though the producer has not ended"
            while (polled := view.poll()) is not None:
                if isinstance(polled.element, EndOfPartition):
                    return
                got.extend(polled.element.values)
                if polled.next.name == "NONE":
                    break

    consumer = threading.Thread(target=consume)
    consumer.start()
    listener.news.release()  # it looks once by itself
    for number in range(0, rows, 10):
        part.subpartitions[0].write(RowBatch(list(range(number, number + 10))))
        if number % 70 == 0:
            part.flush()
        while not part.is_available:
            assert room.acquire(timeout=30), "no room, though the consumer reads"
    part.finish()
    consumer.join(30)
    assert not consumer.is_alive()
    assert got == list(range(rows))
