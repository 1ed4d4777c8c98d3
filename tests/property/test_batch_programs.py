"""Runtime mode BATCH gives the final results of the same program, whatever the parallelism and the chains."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import RuntimeExecutionMode, StreamExchangeMode, StreamExecutionEnvironment
from penstock.hosting.executor import MiniCluster
from penstock.hosting.job_observer import JobObserver
from tests.property.test_job_graphs import RECORDS, SETTINGS, add, counted, meaning, plans


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


def run(plan, records, setting, memory):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.use_executor(MiniCluster(observer=JobObserver()).executor())
    env.get_configuration().set_string("execution.sorted-inputs.memory", memory)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH).set_parallelism(setting.parallelisms[-1])
    if not setting.is_chaining:
        env.disable_operator_chaining()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())
    streams = []
    for values, parallelism in zip(records, setting.parallelisms, strict=False):
        declared = Types.LONG() if setting.is_typed else None
        stream = env.from_collection(values, Types.LONG())
        spread = stream.rebalance().map(lambda v: v, declared).set_parallelism(parallelism)
        streams.append(spread.assign_timestamps_and_watermarks(strategy))
    for step, parallelism in zip(plan, setting.parallelisms[2:], strict=False):
        streams += add(step, streams, setting, StreamExchangeMode.UNDEFINED, parallelism)
    numbered = [
        stream.map(lambda value, number=number: (number, value))
        for number, stream in enumerate(streams)
    ]
    with numbered[0].union(*numbered[1:]).execute_and_collect() as found:
        return Counter(found)


@settings(deadline=None)
@given(plans(), SETTINGS, RECORDS, RECORDS, st.sampled_from(["1 b", "500 b", "128 mb"]))
def test_a_random_program_gives_the_same_results_in_batch_mode(
    plan, setting, first, second, memory
):
    """However little memory there is for what has to be sorted."""
    records = (first, second)
    streams = [Counter((value, value) for value in values) for values in records]
    for step in plan:
        streams += meaning(step, streams)
    expected = counted(
        ((i, v), n) for i, found in enumerate(streams) for (v, _), n in found.items()
    )
    assert run(plan, records, setting, memory) == expected
