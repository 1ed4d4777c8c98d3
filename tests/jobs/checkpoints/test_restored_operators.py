"""Windows, timers, joins and async calls through failures: what comes out is what comes without them."""

from collections import Counter

import pytest

from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.api.base import ReaderStatus, SplitBatch
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
)
from penstock.datastream.connectors import DataGeneratorSource
from penstock.datastream.state import ListStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from tests.tools.output_files import files_below, hidden_below, lines_in
from tests.tools.programs.checkpoint_programs import (
    STAGES,
    Watcher,
    file_sink,
    restarting_environment,
)
from tests.tools.programs.user_functions import same

COUNT = 1500
KEYS = 5
WINDOW_MS = 100
MODES = {"aligned": "false", "unaligned": "true"}


class FailsFrom:
    """At the first record from each of these on that comes when a checkpoint is complete."""

    def __init__(self, stage, *records) -> None:
        self.stage = stage
        self.records = records

    def __call__(self, value):
        stage = STAGES[self.stage]
        for record in self.records:
            if value >= record and record not in stage.seen and stage.gate.is_set():
                stage.seen.add(record)
                raise RuntimeError("planted")
        return value


class HeldNumbers(DataGeneratorSource):
    """Numbers that are their own timestamps; from `hold` on only when the stage's gate is open. None: at once."""

    def __init__(self, stage, hold, rate) -> None:
        type_info = Types.LONG()
        super().__init__(same, COUNT, rate, type_info=type_info, timestamp=same, batch_size=20)
        self.stage = stage
        self.hold = COUNT if hold is None else hold

    def create_reader(self, context):
        reader = super().create_reader(context)
        poll, last = reader.poll_next, -1

        def poll_next():
            nonlocal last
            if last >= self.hold and not STAGES[self.stage].gate.is_set():
                context.wake_at(context.monotonic_ms() + 1)
                return ReaderStatus.NOTHING_AVAILABLE
            polled = poll()
            if isinstance(polled, SplitBatch):
                last = polled.batch.values[-1]
            return polled

        reader.poll_next = poll_next
        return reader


class Pairing(KeyedProcessFunction):
    """Collects what comes within a window's time, and gives it out by a timer."""

    def open(self, runtime_context):
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept", Types.LONG()))

    def process_element(self, value, ctx):
        self.kept.add(value)
        ctx.timer_service().register_event_time_timer(
            ctx.timestamp() // WINDOW_MS * WINDOW_MS + WINDOW_MS
        )

    def on_timer(self, timestamp, ctx):
        kept = sorted(self.kept.get())
        due = [value for value in kept if value < timestamp]
        self.kept.update([value for value in kept if value >= timestamp])
        if due:
            yield ctx.get_current_key(), len(due), sum(due)


class Doubling(AsyncFunction):
    async def async_invoke(self, value):
        return [value * 2]


class Joined(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left, right


def key_of(value):
    return value % KEYS


def windows(numbers):
    keyed = numbers.key_by(key_of, Types.LONG())
    return keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))).reduce(add)


def add(a, b):
    return a + b


def timers(numbers):
    return numbers.key_by(key_of, Types.LONG()).process(Pairing())


def calls(numbers):
    return AsyncDataStream.ordered_wait(numbers, Doubling(), Time.seconds(30), 10)


def joins(numbers):
    left = numbers.key_by(key_of, Types.LONG())
    right = numbers.map(add_seven, Types.LONG()).key_by(key_of, Types.LONG())
    return (
        left
        .interval_join(right)
        .between(Time.milliseconds(-8), Time.milliseconds(8))
        .process(Joined())
    )


def add_seven(value):
    return value + 7


PROGRAMS = {"windows": windows, "timers": timers, "calls": calls, "joins": joins}


def lines(tmp_path, program, failing, rate=None, **settings):
    watcher = Watcher(STAGES.get(failing.stage))
    every = {
        "execution__checkpointing__interval": "10 ms",
        "execution__checkpointing__dir": str(tmp_path / "checkpoints"),
    }
    env = restarting_environment(watcher, **every | settings)
    source = HeldNumbers(failing.stage, min(failing.records, default=None), rate)
    numbers = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "numbers")
    numbers = numbers.map(failing, Types.LONG())
    out = tmp_path / "out"
    program(numbers).map(str).sink_to(file_sink(out))
    env.execute("restored")
    assert hidden_below(out) == []
    return Counter(lines_in(files_below(out))), watcher


@pytest.fixture
def stage(stage):
    stage.seen = set()
    return stage


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_the_result_is_that_of_a_run_without_failures(tmp_path, stage, program, mode):
    quiet = FailsFrom(stage.name)
    settings = {"execution__checkpointing__unaligned__enabled": MODES[mode]}
    expected, _ = lines(tmp_path / "quiet", PROGRAMS[program], quiet, **settings)
    stage.gate.clear()
    failing = FailsFrom(stage.name, COUNT // 3, COUNT // 2)
    found, watcher = lines(tmp_path / "failing", PROGRAMS[program], failing, 3000, **settings)
    assert stage.seen == set(failing.records)
    assert watcher.restored[-1] is not None
    assert found == expected
    assert expected
