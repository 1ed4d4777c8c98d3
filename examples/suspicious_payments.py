"""Spark SQL, then a function with event-time timers, then Spark SQL again, in one program.

    python examples/suspicious_payments.py [--payments N] [--cards N] [--streaming]

Spark SQL makes payments with card and shop. For each card, in the order of their times, a function remembers a small payment for
a minute: a large one within that minute is suspicious. SQL could say that with a self-join; the function says it once, and keeps
one value of state per card. Spark SQL then counts what was found, by shop, as `<count><tab><sum><tab><shop>`.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession

from penstock.common import Duration, Row, Types
from penstock.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor

SMALL, LARGE = 20, 480
MINUTE_MS = 60_000

PAYMENTS = """
    SELECT p.card, s.name AS shop, p.at, p.amount
    FROM (
        SELECT crc32('card' || id) % {cards} AS card,
               crc32('shop' || id) % 5 AS shop,
               timestamp_millis(1700000000000 + id * 1000) AS at,
               CAST(crc32('amount' || id) % 500 AS DECIMAL(10, 2)) AS amount
        FROM range({payments})
    ) p
    JOIN VALUES (0, 'bakery'), (1, 'books'), (2, 'garden'), (3, 'music'), (4, 'toys') AS s(id, name) ON p.shop = s.id
"""
SUMMARY = """
    SELECT shop, COUNT(*) AS found, SUM(amount) AS amount
    FROM suspicious
    GROUP BY shop
    ORDER BY found DESC, shop
"""


class Suspicious(KeyedProcessFunction):
    """A large payment of a card within a minute after a small one.

    The timer only forgets what is of no use any more: in runtime mode BATCH timers fire behind a key's last payment.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        self.small_until = runtime_context.get_state(
            ValueStateDescriptor("small until", Types.LONG())
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context):
        until = self.small_until.value()
        if value.amount > LARGE and until is not None and ctx.timestamp() < until:
            yield value.card, value.shop, value.at, value.amount
        if value.amount < SMALL:
            until = ctx.timestamp() + MINUTE_MS
            self.small_until.update(until)
            ctx.timer_service().register_event_time_timer(until)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext):
        if self.small_until.value() == timestamp:
            self.small_until.clear()
        return ()


def suspicious_of(payments: DataFrame, mode: RuntimeExecutionMode) -> DataFrame:
    """The suspicious ones of them."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_runtime_mode(mode)
    stream = env.from_spark(payments, timestamp_column="at", watermark=Duration.of_seconds(0))
    found = stream.key_by(lambda payment: payment.card).process(Suspicious(), stream.get_type())
    return found.to_spark("suspicious")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--payments", type=int, default=20_000)
    parser.add_argument("--cards", type=int, default=20)
    parser.add_argument("--streaming", action="store_true")
    told = parser.parse_args(arguments)

    spark = SparkSession.builder.master("local[4]").appName("payments").getOrCreate()
    payments = spark.sql(PAYMENTS.format(cards=told.cards, payments=told.payments))
    if told.streaming:  # in the order of their times: it is one partition
        payments = payments.orderBy("at").coalesce(1)
    mode = RuntimeExecutionMode.STREAMING if told.streaming else RuntimeExecutionMode.BATCH
    suspicious_of(payments, mode)
    for row in spark.sql(SUMMARY).collect():
        print(f"{row.found}\t{row.amount}\t{row.shop}")


if __name__ == "__main__":
    main()
