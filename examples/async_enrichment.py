"""Asking a service for each record, many at a time: an async function with a timeout and retries.

python examples/async_enrichment.py
"""

import asyncio

from penstock.common import Time
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    StreamExecutionEnvironment,
)

PRICES = {"apple": 30, "pear": 45, "plum": 20}
ORDERS = [("apple", 3), ("plum", 10), ("pear", 1), ("apple", 1)]


class Price(AsyncFunction):
    """Here the service is a coroutine that takes a moment; it may as well be a call by HTTP."""

    async def async_invoke(self, value):
        fruit, count = value
        await asyncio.sleep(0.01)
        return [(fruit, count * PRICES[fruit])]


def priced(env: StreamExecutionEnvironment) -> DataStream:
    orders = env.from_collection(ORDERS)
    return AsyncDataStream.ordered_wait(orders, Price(), Time.seconds(5), capacity=100)


if __name__ == "__main__":
    environment = StreamExecutionEnvironment.get_execution_environment()
    priced(environment).print()
    environment.execute("prices")
