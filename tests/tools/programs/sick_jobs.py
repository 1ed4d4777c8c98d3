"""Jobs that have one illness each, for tests of what says so: the verdict, and the first screen of the dashboard."""

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import MapFunction
from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.hosting.rest import SETTINGS
from tests.tools.programs.environments import minicluster_environment
from tests.tools.programs.sick_programs import FLOWS, FailsAt, Flow, computes, hot

QUICK = {
    **SETTINGS,
    "heartbeat.interval": "200 ms",
    "metrics.fetcher.update-interval": "50 ms",
}
AGAIN = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "10 ms",
}
ONE_EACH = (((("a", FLOWS),)), ((("b", FLOWS),)))


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


RISING = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(EventTime())
NO_TIME = WatermarkStrategy.no_watermarks()


class Failing(MapFunction, FailsAt):
    def open(self, runtime_context):
        FailsAt.open(self, runtime_context)

    def map(self, value):
        return FailsAt.map(self, value)


def environment(slots=2, taskmanagers=None, **more):
    settings = QUICK | {key.replace("__", "."): value for key, value in more.items()}
    env = minicluster_environment(MiniCluster(slots, taskmanagers), settings)
    return env.set_parallelism(2)


def records(env, source, strategy=NO_TIME):
    return env.from_source(source, strategy, "records")


def slow_operator(function=computes, **more):
    env = environment(**more)
    slow = records(env, Flow(ONE_EACH, floods=True)).rebalance().map(function).name("slow")
    slow.rebalance().filter(lambda _: False).name("quick").print().name("out")
    return env


def skewed_key(**more):
    env = environment(**more)
    keyed = records(env, Flow(ONE_EACH, rows=50)).key_by(hot, Types.LONG())
    keyed.reduce(lambda a, b: a).name("sum").filter(lambda _: False).print()
    return env


def stuck_split(kind, **more):
    """Split `c` of subtask 1 holds the watermark."""
    env = environment(**more)
    timed = records(env, Flow(((("a", FLOWS),), (("b", FLOWS), ("c", kind)))), RISING)
    timed.key_by(lambda value: value[0]).filter(lambda _: False).print()
    return env


def late_subtask(folder, gate, **more):
    """Subtask 1 of the source acknowledges no checkpoint before its gate is opened."""
    env = environment(**more, **{
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(folder),
    })  # fmt: skip
    slow = records(env, Flow(ONE_EACH, gate=gate))
    slow.rebalance().filter(lambda _: False).print()
    return env


def restarting(**more):
    """Subtask 1 of `divide` fails again and again."""
    env = environment(**more, **AGAIN)
    bad = records(env, Flow(ONE_EACH)).rebalance().map(Failing(1)).name("divide")
    bad.rebalance().filter(lambda _: False).print()
    return env
