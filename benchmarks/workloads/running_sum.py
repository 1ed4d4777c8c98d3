"""A keyed process function that several benchmarks measure. Its TaskManagers load this module, and little besides."""

from collections.abc import Iterator
from typing import Any

from penstock.common import Types
from penstock.datastream import KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import ValueStateDescriptor

Pair = tuple[int, int]


class RunningSum(KeyedProcessFunction):
    """The sum per key, one result per record."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Pair, ctx: Any) -> Iterator[Pair]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def key_of(pair: Pair) -> int:
    return pair[0]
