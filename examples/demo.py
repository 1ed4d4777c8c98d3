"""Orders of two shops, with four illnesses that the dashboard switches on and off: see what each looks like.

    python examples/demo.py

It runs until it is cancelled, on the page or by Ctrl-C. Both shops send orders; a total is kept for each customer, and a window sums up
each district's orders of five seconds. Open the address that the first line names.
"""

import random
import shutil
import tempfile
import time
from pathlib import Path

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, MapFunction, StreamExecutionEnvironment
from penstock.datastream.connectors.datagen import DataGeneratorSource
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.engine.model.errors import JobCancelledError

PER_SECOND = 100.0
CUSTOMERS = 97
DISTRICTS = 32
SECONDS_LATE = 90
SLOW_S = 0.02
TOTAL_S = 0.006
"""Two subtasks keep up with this, and one alone does not."""
ORDER = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])
SHOP, CUSTOMER, AT, AMOUNT = range(4)
SWITCHES = {
    "slow-operator": "The operator 'price' takes 20 ms for each order: see who limits the job.",
    "skewed-key": "Nine of ten orders are of one customer: see which subtask and which key.",
    "late-source": "Orders of the market come 90 s late: see who holds the watermark.",
    "failing-function": "The operator 'check' fails now and then: see restarts and their cause.",
}


class Switch:
    """Whether a switch is on. Looks at its file ten times a second."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file = folder / f"{name}.on"
        self.looked_at = 0.0
        self.was_on = False

    def is_on(self) -> bool:
        now = time.monotonic()
        if now - self.looked_at > 0.1:
            self.looked_at, self.was_on = now, self.file.exists()
        return self.was_on


class Orders(MapFunction):
    """Order number `n` of a shop."""

    def __init__(self, shop: str, folder: Path) -> None:
        self.shop = shop
        self.skewed = Switch(folder, "skewed-key")
        self.late = Switch(folder, "late-source")

    def map(self, value):
        customer = 7 if self.skewed.is_on() and value % 10 else value % CUSTOMERS
        is_late = self.shop == "market" and self.late.is_on()
        at = time.time_ns() // 1_000_000 - (SECONDS_LATE * 1000 if is_late else 0)
        return self.shop, customer, at, 5 + value % 20


class Price(MapFunction):
    """Looks a price up; slowly, if that is switched on."""

    def __init__(self, folder: Path) -> None:
        self.slow = Switch(folder, "slow-operator")

    def map(self, value):
        if self.slow.is_on():
            time.sleep(SLOW_S)
        return value


class Check(MapFunction):
    """Refuses an order every now and then, if that is switched on."""

    def __init__(self, folder: Path) -> None:
        self.failing = Switch(folder, "failing-function")

    def map(self, value):
        if self.failing.is_on() and random.random() < 0.01:
            raise ValueError(f"customer {value[CUSTOMER]} of the {value[SHOP]} is not known")
        return value


def total(one, other):
    """Add two orders of a customer up. It takes its time."""
    time.sleep(TOTAL_S)
    return *other[:AMOUNT], one[AMOUNT] + other[AMOUNT]


class TimeOfOrder(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[AT]


def orders(env: StreamExecutionEnvironment, shop: str, folder: Path) -> DataStream:
    source = DataGeneratorSource(lambda number: number, None, PER_SECOND)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), shop)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
    return (
        numbers
        .map(Orders(shop, folder), output_type=ORDER)
        .name(f"orders of the {shop}")
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeOfOrder()))
    )


def totals(env: StreamExecutionEnvironment, folder: Path) -> None:
    """The whole job."""
    both = orders(env, "bakery", folder).union(orders(env, "market", folder))
    priced = both.rebalance().map(Price(folder), output_type=ORDER).name("price")
    checked = priced.rebalance().map(Check(folder), output_type=ORDER).name("check")
    by_customer = checked.key_by(lambda order: order[CUSTOMER], key_type=Types.LONG())
    of_customers = by_customer.reduce(total)
    of_customers.name("total of each customer").filter(lambda _: False).print()
    of_districts = checked.key_by(lambda order: order[CUSTOMER] % DISTRICTS, key_type=Types.LONG())
    windows = of_districts.window(TumblingEventTimeWindows.of(Time.seconds(5)))
    sums = windows.reduce(lambda one, other: (*other[:AMOUNT], one[AMOUNT] + other[AMOUNT]))
    sums.name("sum of each district").filter(lambda _: False).print()


def environment(folder: Path, more: dict[str, str] | None = None) -> StreamExecutionEnvironment:
    """`more`: further settings."""
    configuration = Configuration()
    for key, value in {
        "penstock.web.switches": str(folder),
        "execution.checkpointing.interval": "3 s",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "2 s",
        **(more or {}),
    }.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def offer(folder: Path) -> None:
    """Write what the switches do: then the dashboard shows them."""
    for name, text in SWITCHES.items():
        (folder / f"{name}.text").write_text(text, encoding="utf-8")


def run(env: StreamExecutionEnvironment, folder: Path) -> None:
    """Until it is cancelled."""
    offer(folder)
    totals(env, folder)
    try:
        env.execute("orders to totals")
    except (KeyboardInterrupt, JobCancelledError):
        print("The demonstration has ended.")


if __name__ == "__main__":
    switches = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        run(environment(switches), switches)
    finally:
        shutil.rmtree(switches)
