"""Bytewax: a process of one worker for each subtask, batches of 1,000 records at the source (its default), no recovery.

Seconds: from the first batch that any worker reads to the close of the last sink.
"""

import multiprocessing
import os
import socket
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax._bytewax import cluster_main
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from checks import BASE_MS, Arguments, Notes, each, notes, q1_sum, q5_of, tell

BATCH = 1000
EPOCH = timedelta(seconds=10)
ALIGNED_MS = BASE_MS - 100_000
WINDOW, SLIDE = timedelta(seconds=10), timedelta(seconds=2)


class LinesPart(StatefulSourcePartition):
    def __init__(self, path, left):
        self.file = open(path, "rb")
        left.leave("first", time.time())

    def next_batch(self):
        batch = []
        for line in self.file:
            batch.append(line)
            if len(batch) == BATCH:
                return batch
        if not batch:
            raise StopIteration
        return batch

    def snapshot(self):
        return None


class Lines(FixedPartitionedSource):
    """As bytes: cheaper than Bytewax's own source, which decodes each line and asks for its place."""

    def __init__(self, arguments, left):
        self.directory = arguments.input
        self.left = left

    def list_parts(self):
        return sorted(os.listdir(self.directory))

    def build_part(self, step_id, for_part, resume_state):
        return LinesPart(self.directory / for_part, self.left)


class SumPart(StatelessSinkPartition):
    def __init__(self, of, left):
        self.of, self.left = of, left
        self.rows = self.sum = 0

    def write_batch(self, items):
        self.rows += len(items)
        self.sum += self.of(items)

    def close(self):
        self.left.leave("sum", (self.rows, self.sum))
        self.left.leave("last", time.time())


class Sum(DynamicSink):
    def __init__(self, of, left):
        self.of, self.left = of, left

    def build(self, step_id, worker_index, worker_count):
        return SumPart(self.of, self.left)


# ---------------------------------------------------------------------- workloads


def words_in(lines):
    return [word for line in lines for word in line.decode().split()]


def count_one(count, _):
    count = (count or 0) + 1
    return count, count


def word_count(lines, arguments):
    words = op.flat_map_batch("split", lines, words_in)
    if arguments.kind == "final":
        counts = op.count_final("count", words, lambda word: word)
        return counts, each(lambda pair: pair[1] * pair[1] + pair[1] * len(pair[0]))
    keyed = op.key_on("key", words, lambda word: word)
    return op.stateful_map("count", keyed, count_one), each(lambda pair: pair[1])


def bidder_and_price(line):
    bid = orjson.loads(line)
    return str(bid["bidder"]), bid["price"]


def count_and_last(state, price):
    count = 1 if state is None else state[0] + 1
    return (count, price), (count, price)


def keyed_state(lines, _):
    keyed = op.map("parse", lines, bidder_and_price)
    return op.stateful_map("state", keyed, count_and_last), each(lambda pair: pair[1][0])


def in_euros(line):
    bid = orjson.loads(line)
    return bid["auction"], bid["bidder"], 0.908 * bid["price"], bid["ts"], bid["extra"]


def q1(lines, _):
    return op.map("euros", lines, in_euros), q1_sum


def auction_and_time(line):
    bid = orjson.loads(line)
    return str(bid["auction"]), bid["ts"]


def hottest(best, count):
    if not best or count[1] > best[0][1]:
        return [count]
    return [*best, count] if count[1] == best[0][1] else best


def q5(lines, _):
    base = datetime.fromtimestamp(BASE_MS / 1000, UTC)
    aligned = datetime.fromtimestamp(ALIGNED_MS / 1000, UTC)
    clock = win.EventClock(
        ts_getter=lambda ts: base + timedelta(milliseconds=ts - BASE_MS),
        wait_for_system_duration=timedelta(seconds=20),
    )
    windower = win.SlidingWindower(length=WINDOW, offset=SLIDE, align_to=aligned)
    keyed = op.map("parse", lines, auction_and_time)
    counts = win.fold_window(
        "count", keyed, clock, windower, lambda: 0, lambda n, _: n + 1, lambda n, m: n + m
    )
    by_window = op.map(
        "window", counts.down, lambda one: (str(one[1][0]), (int(one[0]), one[1][1]))
    )
    best = op.fold_final("hottest", by_window, list, hottest)
    rows = op.flat_map(
        "rows",
        best,
        lambda one: [
            (auction, n, ALIGNED_MS + 2000 * int(one[0]) + 10_000) for auction, n in one[1]
        ],
    )
    return rows, each(lambda row: q5_of(*row))


WORKLOADS = {"word_count": word_count, "keyed_state": keyed_state, "q1": q1, "q5": q5}


def work(arguments, left: Notes, addresses, number):
    flow = Dataflow("peer")
    lines = op.input("lines", flow, Lines(arguments, left))
    out, of = WORKLOADS[arguments.workload](lines, arguments)
    op.output("sum", out, Sum(of, left))
    cluster_main(flow, addresses, number, epoch_interval=EPOCH, worker_count_per_proc=1)


def free_addresses(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses


def main():
    arguments = Arguments()
    addresses = free_addresses(arguments.parallelism)
    with notes() as left:
        forked = multiprocessing.get_context("fork")
        workers = [
            forked.Process(target=work, args=(arguments, left, addresses, number))
            for number in range(arguments.parallelism)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        tell(max(left.left("last")) - min(left.left("first")), left.check())


if __name__ == "__main__":
    main()
