"""Small functions of users that many programs of tests have."""

from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import AggregateFunction


class ValueIsTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


class SecondIsTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class MeanOf(AggregateFunction):
    """Of one field of the values."""

    def __init__(self, index):
        self.index = index

    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[self.index], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def same(value):
    return value


def first_of(value):
    return value[0]


def running_sum(a, b):
    return a[0], a[1] + b[1]
