"""Pathway, threads as many as subtasks, in static mode: all input is one commit, the bounded form that its documentation gives.

It emits final values. In keyed_state a reducer of its own kind gives one row for each key, of which the sum of the counts on the way
is told. Seconds: `pw.run`, with which the graph is built.
"""

import os
import time

from checks import Arguments, final_counts_of, q1_of, q5_sum, tell

ARGUMENTS = Arguments()
os.environ["PATHWAY_THREADS"] = str(ARGUMENTS.parallelism)

import pathway as pw  # it reads the number of threads when it is imported


class Bid(pw.Schema):
    auction: int
    bidder: int
    price: int
    ts: int
    extra: str


def bids():
    return pw.io.jsonlines.read(f"{ARGUMENTS.input}/", schema=Bid, mode="static")


def word_count():
    lines = pw.io.plaintext.read(f"{ARGUMENTS.input}/", mode="static")
    words = lines.select(word=pw.apply_with_type(str.split, list[str], pw.this.data))
    words = words.flatten(pw.this.word)
    counts = {}

    def change(key, row, time, is_addition):
        if is_addition:
            counts[row["word"]] = row["count"]

    counted = words.groupby(words.word).reduce(words.word, count=pw.reducers.count())
    return counted, change, lambda: final_counts_of(counts)


def keyed_state():
    @pw.reducers.stateful_single
    def count_and_last(state, price):
        return (1 if state is None else state[0] + 1, price)

    found = {}

    def change(key, row, time, is_addition):
        if is_addition:
            found[row["bidder"]] = row["state"][0]

    table = bids()
    kept = table.groupby(table.bidder).reduce(table.bidder, state=count_and_last(table.price))
    return (
        kept,
        change,
        lambda: (sum(found.values()), sum(n * (n + 1) // 2 for n in found.values())),
    )


def q1():
    table = bids()
    euros = table.select(
        table.auction, table.bidder, table.ts, table.extra, price=0.908 * table.price
    )
    total = [0, 0]

    def change(key, row, time, is_addition):
        total[0] += 1
        total[1] += q1_of(row["auction"], row["bidder"], row["price"], row["ts"], row["extra"])

    return euros, change, lambda: tuple(total)


def q5():
    table = bids()
    windows = pw.temporal.sliding(hop=2000, duration=10_000, origin=1_699_999_900_000)
    counts = table.windowby(table.ts, window=windows, instance=table.auction).reduce(
        auction=pw.this._pw_instance, end=pw.this._pw_window_end, bids=pw.reducers.count()
    )
    most = counts.groupby(counts.end).reduce(counts.end, most=pw.reducers.max(counts.bids))
    hottest = counts.join(most, counts.end == most.end, counts.bids == most.most).select(
        counts.auction, counts.bids, counts.end
    )
    rows = {}

    def change(key, row, time, is_addition):
        one = (row["auction"], row["bids"], row["end"])
        rows[one] = rows.get(one, 0) + (1 if is_addition else -1)

    return hottest, change, lambda: q5_sum(one for one, times in rows.items() if times > 0)


WORKLOADS = {"word_count": word_count, "keyed_state": keyed_state, "q1": q1, "q5": q5}


def main():
    table, change, check = WORKLOADS[ARGUMENTS.workload]()
    pw.io.subscribe(table, on_change=change)
    started = time.time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    tell(time.time() - started, check())


if __name__ == "__main__":
    main()
