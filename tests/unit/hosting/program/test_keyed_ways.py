"""How aggregates of windows will run is told before the job runs."""

from penstock.common import Time
from penstock.datastream.functions import AggregateFunction
from penstock.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from tests.unit.hosting.program.test_function_ways import columns, told_of, ways


class Average(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value.a, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Count(Average):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1


class Largest(Average):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return value.a if value.a > accumulator else accumulator


class OfFloats(Average):
    def create_accumulator(self):
        return 0.0, 0


def test_aggregates_that_count_and_sum_add_the_records_of_a_key_at_once():
    def build(env):
        keyed = columns(env).key_by(lambda row: row.b)
        windows = keyed.window(SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1)))
        windows.aggregate(Average()).name("sums")
        tumbling = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
        tumbling.aggregate(Average()).name("sums without overlaps")
        tumbling.aggregate(Count()).name("counts")
        windows.aggregate(Average()).name("aside").on_error("skip")
        windows.aggregate(Largest()).name("largest")
        windows.aggregate(OfFloats()).name("floats")
        keyed.count_window(3).aggregate(Average()).name("counted")

    def of_both(env):
        keyed = columns(env).key_by(lambda row: row.b)
        for aggregate in (Average(), Count(), Largest()):
            windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1)))
            windows.aggregate(aggregate).print()

    assert ways(build) == [
        ("sums", "partials", ""),
        ("sums without overlaps", "fields", "it has state"),
        ("counts", "partials", ""),
        ("aside", "records", "records at which it raises are put aside"),
        ("largest", "fields", "it has state"),
        ("floats", "fields", "it has state"),
        ("counted", "records", "windows of this kind add one record at a time"),
    ]
    told = [way for _, way in told_of(of_both)]
    assert "partials" in told
    assert "fields, not partials - its accumulator is no sum" in told
    assert "fields, not partials - a sum needs windows that overlap" in told
