"""Five jobs that are ill, written for PyFlink's API, which is ours too: `python streaming.py slow-map --port 8081` runs one on Flink.

Flink's own runtime and web interface, in one process, until it is stopped. `Program` makes the same jobs with either library.
"""

import argparse
import importlib
import sys
import time

ENDLESS = 1 << 40
PER_SECOND = 200
SECONDS_HELD = 8
ILLNESSES = (
    "slow-map",
    "skewed-key",
    "stuck-partition",
    "checkpoint-straggler",
    "flapping-restart",
)
SETTINGS = {
    "execution.checkpointing.interval": "2 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "1 s",
    "pipeline.auto-watermark-interval": "200 ms",
}
OF_FLINK = {
    "rest.flamegraph.enabled": "true",
    "taskmanager.numberOfTaskSlots": "4",
    "python.fn-execution.bundle.size": "10",
    "python.fn-execution.bundle.time": "100",
    "web.refresh-interval": "1000",
}


def computes(turns):
    """Take time of the processor, as a parser does."""
    sum(range(turns))


class Program:
    """The jobs, made with one of the libraries.

    `library`: "penstock" or "pyflink". `numbers`: a stream of PER_SECOND numbers; `quick_numbers`: one as quick as it is read. Both are
    functions of an environment.
    """

    def __init__(self, library, numbers, quick_numbers) -> None:
        self.datastream = importlib.import_module(f"{library}.datastream")
        self.windows = importlib.import_module(f"{library}.datastream.window")
        self.common = importlib.import_module(f"{library}.common")
        self.watermarks = importlib.import_module(f"{library}.common.watermark_strategy")
        self.numbers = numbers
        self.quick_numbers = quick_numbers
        self.long = self.common.Types.LONG()
        self.pair = self.common.Types.TUPLE([self.long, self.long])

    def build(self, env, illness):
        """Add a job to an environment of two subtasks."""
        last = {
            "slow-map": self._slow_map,
            "skewed-key": self._skewed_key,
            "stuck-partition": self._stuck_partition,
            "checkpoint-straggler": self._checkpoint_straggler,
            "flapping-restart": self._flapping_restart,
        }[illness](env)
        last.filter(lambda _: False).name("nothing").print().name("out")

    def _slow_map(self, env):
        def slow(value):
            computes(40_000)
            return value

        numbers = self.quick_numbers(env).rebalance()
        return numbers.map(slow, output_type=self.long).name("slow").rebalance()

    def _skewed_key(self, env):
        """Nine of ten records are of customer 7."""

        def total(one, other):
            computes(4_000)
            return one[0], one[1] + other[1]

        def customer(number):
            return (7 if number % 10 else number % 97, 1)

        pairs = self.quick_numbers(env).map(customer, output_type=self.pair).name("customers")
        return pairs.key_by(lambda one: one[0], self.long).reduce(total).name("total")

    def _stuck_partition(self, env):
        """The time of subtask 1 stands still."""

        class Timed(self.datastream.MapFunction):
            def open(self, runtime_context):
                self.is_stuck = runtime_context.get_index_of_this_subtask() == 1
                self.began = time.time_ns() // 1_000_000

            def map(self, value):
                return value, self.began if self.is_stuck else time.time_ns() // 1_000_000

        class Second(self.watermarks.TimestampAssigner):
            def extract_timestamp(self, value, record_timestamp):
                return value[1]

        timed = self.numbers(env).map(Timed(), output_type=self.pair).name("times")
        strategy = self.watermarks.WatermarkStrategy.for_monotonous_timestamps()
        marked = timed.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Second()))
        five_seconds = self.windows.TumblingEventTimeWindows.of(self.common.Time.seconds(5))
        keyed = marked.key_by(lambda one: one[0] % 97, self.long).window(five_seconds)
        return keyed.reduce(lambda one, _: one).name("window")

    def _checkpoint_straggler(self, env):
        """Some calls of subtask 1 take seconds: no barrier passes them."""

        class Held(self.datastream.MapFunction):
            def open(self, runtime_context):
                self.is_held = runtime_context.get_index_of_this_subtask() == 1
                self.seen = 0

            def map(self, value):
                self.seen += 1
                if self.is_held and self.seen % (4 * PER_SECOND) == PER_SECOND:
                    time.sleep(SECONDS_HELD)
                return value

        numbers = self.numbers(env).rebalance()
        return numbers.map(Held(), output_type=self.long).name("held").rebalance()

    def _flapping_restart(self, env):
        """Subtask 1 fails some seconds after each start."""

        class Divide(self.datastream.MapFunction):
            def open(self, runtime_context):
                self.fails = runtime_context.get_index_of_this_subtask() == 1
                self.seen = 0

            def map(self, value):
                self.seen += 1
                if self.fails and self.seen > PER_SECOND:
                    raise ZeroDivisionError("the price of this order is divided by zero")
                return value

        numbers = self.numbers(env).rebalance()
        return numbers.map(Divide(), output_type=self.long).name("divide").rebalance()


def run_on_flink(illness, port):
    from pyflink.common import Configuration, Types, WatermarkStrategy
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource
    from pyflink.table import StreamTableEnvironment

    configuration = Configuration()
    settings = {**SETTINGS, **OF_FLINK, "rest.port": port, "rest.bind-port": port}
    settings |= {"python.executable": sys.executable, "python.client.executable": sys.executable}
    for key, value in settings.items():
        configuration.set_string(key, str(value))
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)

    def numbers(env):
        """PyFlink has no class for Flink's source of a rate, but SQL has it."""
        tables = StreamTableEnvironment.create(env)
        rate = f"'rows-per-second'='{PER_SECOND}'"
        kind = f"'fields.n.kind'='sequence','fields.n.start'='0','fields.n.end'='{ENDLESS >> 20}'"
        tables.execute_sql(
            f"CREATE TABLE records (n BIGINT) WITH ('connector'='datagen',{rate},{kind})"
        )
        rows = tables.to_data_stream(tables.from_path("records"))
        return rows.map(lambda row: row[0], output_type=Types.LONG()).name("numbers")

    def quick_numbers(env):
        source = NumberSequenceSource(0, ENDLESS)
        return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")

    Program("pyflink", numbers, quick_numbers).build(env, illness)
    env.execute(illness)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("illness", choices=ILLNESSES)
    parser.add_argument("--port", type=int, required=True, help="of Flink's web interface")
    arguments = parser.parse_args()
    run_on_flink(arguments.illness, arguments.port)
