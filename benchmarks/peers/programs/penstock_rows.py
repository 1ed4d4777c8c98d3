"""Ours with Python functions on rows, as a PyFlink program has them."""

import functools
from collections.abc import Callable
from pathlib import Path

from benchmarks.measures.word_count import add, word_of, words_with_one
from benchmarks.peers.programs.checks import Arguments, each, q1_sum, q5_of
from benchmarks.peers.programs.penstock_sum import Query, SumOf, run
from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.api.base import Source
from penstock.connectors.file_system import (
    FileEnumeratorProvider,
    FileSource,
    FileSourceBuilder,
    StreamFormat,
)
from penstock.datastream import AggregateFunction, DataStream, KeyedProcessFunction
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import SlidingEventTimeWindows

TYPES = {
    "auction": Types.LONG(),
    "bidder": Types.LONG(),
    "price": Types.LONG(),
    "ts": Types.LONG(),
    "extra": Types.STRING(),
}
FIELDS = {
    "keyed_state": ["bidder", "price"],
    "q1": ["auction", "bidder", "price", "ts", "extra"],
    "q5": ["auction", "ts"],
}


def word_count(lines: DataStream) -> DataStream:
    """Sums of whole numbers may be combined, which only who knows the records can say: they have no declared type."""
    return lines.flat_map(words_with_one).key_by(word_of).reduce(add, combine=True)


def final_word(pair: tuple[str, int]) -> int:
    return pair[1] * pair[1] + pair[1] * len(pair[0])


class CountAndLast(KeyedProcessFunction):
    def open(self, runtime_context):
        self.kept = runtime_context.get_state(
            ValueStateDescriptor("kept", Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value, ctx):
        kept = self.kept.value()
        count = 1 if kept is None else kept[0] + 1
        self.kept.update((count, value[1]))
        yield value[0], count, value[1]


def keyed_state(bids: DataStream) -> DataStream:
    return bids.key_by(lambda bid: bid[0]).process(CountAndLast())


def in_euros(bid):
    auction, bidder, price, ts, extra = bid
    return auction, bidder, 0.908 * price, ts, extra


def q1(bids: DataStream) -> DataStream:
    return bids.map(in_euros)


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
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.best = runtime_context.get_list_state(ListStateDescriptor("best", pickled))
        self.most = runtime_context.get_state(ValueStateDescriptor("most", pickled))

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


def q5(bids: DataStream) -> DataStream:
    counts = (
        bids
        .key_by(lambda bid: bid[0])
        .window(SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(2)))
        .aggregate(Count(), WithWindow())
    )
    return counts.key_by(lambda row: row[2]).process(Hottest())


WORKLOADS: dict[str, tuple[Callable[[DataStream], DataStream], SumOf]] = {
    "word_count": (word_count, each(lambda pair: pair[1])),
    "keyed_state": (keyed_state, each(lambda row: row[1])),
    "q1": (q1, q1_sum),
    "q5": (q5, each(lambda row: q5_of(*row))),
}


def source_of(workload: str, directory: Path) -> Source:
    if workload == "word_count":
        form = StreamFormat.text_line_format()
    else:
        names = FIELDS[workload]
        row = Types.ROW_NAMED(names, [TYPES[name] for name in names])
        form = StreamFormat.json_lines_format(row, timestamps=timestamps_of(workload))
    return whole_files(FileSource.for_record_stream_format(form, str(directory)))


def whole_files(builder: FileSourceBuilder) -> Source:
    """A subtask reads a file from its beginning to its end: times do not go back in it."""
    enumerator = FileEnumeratorProvider.default_non_splittable_file_enumerator()
    return builder.set_file_enumerator(enumerator).build()


def timestamps_of(workload: str) -> str | None:
    """As in the peers' programs, only query 5 has event time."""
    return "ts" if workload == "q5" else None


def watermarks_of(workload: str) -> WatermarkStrategy:
    if workload == "q5":
        return WatermarkStrategy.for_monotonous_timestamps()
    return WatermarkStrategy.no_watermarks()


def main() -> None:
    arguments = Arguments()
    workload = arguments.workload
    pipeline, of = WORKLOADS[workload]
    if workload == "word_count" and arguments.kind == "final":
        of = each(final_word)
    source = functools.partial(source_of, workload)
    run(arguments, Query(source, pipeline, of, False, watermarks_of(workload)))


if __name__ == "__main__":
    main()
