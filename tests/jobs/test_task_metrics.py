"""What a job tells of its subtasks: counters, shares of time, watermark (docs/spec/tasks.md#time)."""

import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.runtime.elements import MAX_WATERMARK
from tests.tools.programs.user_functions import ValueIsTime

ROWS = 5000


@pytest.fixture
def reports():
    executor = MiniCluster(parallelism=2).executor()
    env = StreamExecutionEnvironment.get_execution_environment().use_executor(executor)
    env.set_parallelism(2)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())
    numbers = env.from_collection(list(range(ROWS))).assign_timestamps_and_watermarks(strategy)
    numbers.key_by(lambda n: n % 7).map(lambda n: n).name("Mapped").print()
    client = env.execute_async("metrics")
    client.get_job_execution_result().result()
    return client.get_task_metrics().result()


def test_records_are_counted_once_on_each_side_of_an_exchange(reports):
    sent = sum(io.records_out for name, _, io in reports if name.startswith("Source"))
    received = sum(io.records_in for name, _, io in reports if name.startswith("Mapped"))
    assert (sent, received) == (ROWS, ROWS)


def test_bytes_are_counted_where_they_were_encoded(reports):
    assert sum(io.bytes_in for name, _, io in reports if name.startswith("Mapped")) > 0


def test_every_subtask_reports_and_its_three_shares_of_a_second_sum_to_it(reports):
    assert {subtask for name, subtask, _ in reports if name.startswith("Mapped")} == {0, 1}
    for _, _, io in reports:
        recent = io.recent
        shares = recent.busy_ms_per_s, recent.idle_ms_per_s, recent.backpressured_ms_per_s
        assert sum(shares) == pytest.approx(1000)
        assert min(shares) >= 0


def test_at_the_end_of_the_input_the_watermark_is_the_highest_and_nothing_waits(reports):
    for name, _, io in reports:
        if name.startswith("Mapped"):
            assert io.watermark_ms == MAX_WATERMARK
        assert (io.buffers_in, io.buffers_out, io.mails) == (0, 0, 0)
