"""PyFlink's DataStream API in mode `process` or `thread`: heap state, object reuse, bundles of 100,000 records or 1 s, no checkpoints.

Lines cross into Python as strings and are parsed there, which is the cheapest way. Seconds: from the first Python `open` to the end of
the job. In process mode each Python operator's subtask has a worker of its own, as on a cluster.
"""

import os
import sys
import time

from checks import Arguments, Notes, notes, q1_of, q5_of, tell

ARGUMENTS = Arguments()
_PLACES = [os.path.dirname(os.path.abspath(__file__))]
if ARGUMENTS.mode == "process":
    os.environ["_python_worker_execution_mode"] = "process"  # else threads of this process
else:
    import pemja

    _PLACES.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(pemja.__file__))))
os.environ["PYTHONPATH"] = os.pathsep.join(_PLACES)  # of the workers

import orjson
from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import SlidingEventTimeWindows
from pyflink.java_gateway import get_gateway

LONG, STRING = Types.LONG(), Types.STRING()
SETTINGS = {
    "python.execution-mode": ARGUMENTS.mode,
    "python.fn-execution.bundle.size": 100_000,
    "python.fn-execution.bundle.time": 1000,
    "python.state.cache-size": 1_000_000,
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
    "pipeline.object-reuse": "true",
    "taskmanager.numberOfTaskSlots": ARGUMENTS.parallelism,
    "taskmanager.memory.managed.size": "1g",
    "rest.port": 0,
    "rest.bind-port": 0,
}


class Mapped(MapFunction):
    """A function on each line, which tells when it is opened."""

    def __init__(self, function, left: Notes):
        self.function, self.left = function, left

    def open(self, runtime_context):
        self.left.leave("first", time.time())

    def map(self, value):
        return self.function(value)


class Words(FlatMapFunction):
    def __init__(self, left: Notes):
        self.left = left

    def open(self, runtime_context):
        self.left.leave("first", time.time())

    def flat_map(self, value):
        for word in value.split():
            yield word, 1


class Counting(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield value[0], count


class CountAndLast(KeyedProcessFunction):
    def open(self, runtime_context):
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.kept = runtime_context.get_state(ValueStateDescriptor("kept", pair))

    def process_element(self, value, ctx):
        kept = self.kept.value()
        count = 1 if kept is None else kept[0] + 1
        self.kept.update((count, value[1]))
        yield value[0], count, value[1]


class ByTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class WithWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        for count in elements:
            yield key, count, context.window().end


class Hottest(KeyedProcessFunction):
    def open(self, runtime_context):
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.best = runtime_context.get_list_state(ListStateDescriptor("best", pair))
        self.most = runtime_context.get_state(ValueStateDescriptor("most", Types.LONG()))

    def process_element(self, value, ctx):
        most = self.most.value()
        if most is None:
            ctx.timer_service().register_event_time_timer(value[2])
        if most is None or value[1] > most:
            self.most.update(value[1])
            self.best.update([(value[0], value[1])])
        elif value[1] == most:
            self.best.add((value[0], value[1]))

    def on_timer(self, timestamp, ctx):
        for auction, count in self.best.get():
            yield auction, count, timestamp
        self.best.clear()
        self.most.clear()


class Sum(ProcessFunction):
    """Gives nothing on; its sum is left when it is closed."""

    def __init__(self, of, left: Notes):
        self.of, self.left = of, left

    def open(self, runtime_context):
        self.rows = self.sum = 0

    def process_element(self, value, ctx):
        self.rows += 1
        self.sum += self.of(value)
        return ()

    def close(self):
        self.left.leave("sum", (self.rows, self.sum))


# ---------------------------------------------------------------------- workloads


def word_count(lines, left):
    words = lines.flat_map(Words(left), Types.TUPLE([STRING, LONG]))
    counts = words.key_by(lambda pair: pair[0], STRING).process(
        Counting(), Types.TUPLE([STRING, LONG])
    )
    return counts, lambda pair: pair[1]


def bidder_and_price(line):
    bid = orjson.loads(line)
    return bid["bidder"], bid["price"]


def keyed_state(lines, left):
    bids = lines.map(Mapped(bidder_and_price, left), Types.TUPLE([LONG, LONG]))
    kept = bids.key_by(lambda bid: bid[0], LONG).process(
        CountAndLast(), Types.TUPLE([LONG, LONG, LONG])
    )
    return kept, lambda row: row[1]


def in_euros(line):
    bid = orjson.loads(line)
    return bid["auction"], bid["bidder"], 0.908 * bid["price"], bid["ts"], bid["extra"]


def q1(lines, left):
    row = Types.TUPLE([LONG, LONG, Types.DOUBLE(), LONG, STRING])
    return lines.map(Mapped(in_euros, left), row), lambda row: q1_of(*row)


def auction_and_time(line):
    bid = orjson.loads(line)
    return bid["auction"], bid["ts"]


def q5(lines, left):
    watermarks = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByTime())
    bids = lines.map(Mapped(auction_and_time, left), Types.TUPLE([LONG, LONG]))
    counts = (
        bids
        .assign_timestamps_and_watermarks(watermarks)
        .key_by(lambda bid: bid[0], LONG)
        .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2)))
        .aggregate(
            Count(),
            WithWindow(),
            accumulator_type=Types.LONG(),  # pickled: LONG holds a Java object by now
            output_type=Types.TUPLE([LONG, LONG, LONG]),
        )
    )
    best = counts.key_by(lambda row: row[2], LONG).process(
        Hottest(), Types.TUPLE([LONG, LONG, LONG])
    )
    return best, lambda row: q5_of(*row)


WORKLOADS = {"word_count": word_count, "keyed_state": keyed_state, "q1": q1, "q5": q5}


def main():
    configuration = Configuration()
    for key, value in SETTINGS.items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(ARGUMENTS.parallelism)
    files = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), str(ARGUMENTS.input)
    )
    lines = env.from_source(files.build(), WatermarkStrategy.no_watermarks(), "lines")
    with notes() as left:
        out, of = WORKLOADS[ARGUMENTS.workload](lines, left)
        summed = out.process(Sum(of, left), Types.PICKLED_BYTE_ARRAY())
        sinks = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2
        summed._j_data_stream.sinkTo(sinks.DiscardingSink())
        env.execute(ARGUMENTS.workload)
        tell(time.time() - min(left.left("first")), left.check())


if __name__ == "__main__":
    main()
