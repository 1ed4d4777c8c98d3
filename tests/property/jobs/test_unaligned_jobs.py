"""Unaligned checkpoints of random programs at random moments, restored at random parallelisms: what the driver had before the
barriers and what it gets after the restore is what an undisturbed run gives, record for record.
"""

import random
import tempfile
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Types, WatermarkStrategy
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.model.checkpoints import CheckpointOptions
from tests.property.jobs.test_job_graphs import (
    MODULUS,
    SETTINGS,
    Setting,
    Step,
    built,
    counted,
    meaning,
    plans,
)
from tests.tools.hosting.fake_executor import FakeExecutor
from tests.tools.programs.unaligned_job import UnalignedJob

OPTIONS = {
    "unaligned": CheckpointOptions(is_unaligned=True),
    "late": CheckpointOptions(aligned_timeout_ms=5),
    "in time": CheckpointOptions(aligned_timeout_ms=10**6),
    "aligned": CheckpointOptions(),
}
KEYED = ["keyed", "keyed", "window", "connect", "union", "map", "spread"]
ROUNDS = 400


def events_of(chance, tasks) -> list:
    """Some tasks lag behind, so that something is in flight; a checkpoint comes in the middle of that."""
    events: list = []
    for _ in range(chance.randint(1, 2)):
        lagging = {task for task in range(tasks) if chance.random() < 0.4}
        events.append(("room", chance.choice([None, 1, 1, 2])))
        eager = [task for task in range(tasks) if task not in lagging] or [0]
        events.append(("steps", chance.choices(eager, k=chance.randint(1, tasks))))
        if chance.random() < 0.5:
            events.append(("trigger", chance.choice(sorted(OPTIONS))))
        events.append(("steps", chance.choices(eager, k=chance.randint(0, tasks))))
        if chance.random() < 0.5:
            events.append(("wait", None))
            events.append(("steps", chance.choices(range(tasks), k=chance.randint(0, 2 * tasks))))
        if chance.random() < 0.2:
            events.append(("abort", None))
    return events


def disturbed(job, chance) -> int | None:
    """Run through the events, then until a last checkpoint is whole or the job is done. Returns: a checkpoint that is whole."""
    kind = chance.choice([*OPTIONS, "unaligned", "unaligned"])
    for what, how in events_of(chance, len(job.tasks)):
        if what == "steps":
            job.take(how)
        elif what == "trigger":
            job.trigger(OPTIONS[how])
        elif what == "abort" and job.triggered:
            job.abort(job.triggered[-1])
        elif what == "wait":
            job.wait_ms(6)
        elif what == "room":
            job.give_room(how)
    whole = [one for one in job.triggered if job.is_whole(one)]
    if whole and chance.random() < 0.3:
        return whole[-1]
    heads = [place for place, task in enumerate(job.tasks) if not task.inputs]
    job.take(heads)  # their readers lag behind
    job.trigger(OPTIONS[kind])
    for round_number in range(ROUNDS):
        job.wait_ms(6)
        job.take(range(len(job.tasks)))
        job.give_room(round_number // 8)
        if job.is_whole(job.triggered[-1]):
            return job.triggered[-1]
        if all(task.is_done for task in job.tasks):
            return whole[-1] if whole else None
        if job.triggered[-1] in job.aborted:
            job.trigger(OPTIONS[kind])
    raise AssertionError("neither the checkpoint nor the job comes to an end")


RECORDS = st.lists(st.integers(0, MODULUS), min_size=15, max_size=40)


GIVEN = given(plans(KEYED, most=3), st.tuples(RECORDS, RECORDS), SETTINGS, st.integers(0, 2**32))


@settings(max_examples=12)
@GIVEN
def test_a_random_program_goes_on_at_any_parallelism(plan, records, setting, seed):
    check(plan, records, setting, seed)


@pytest.mark.long
@settings(max_examples=200)
@GIVEN
def test_many_random_programs_go_on_at_any_parallelism(plan, records, setting, seed):
    check(plan, records, setting, seed)


def test_a_barrier_that_waits_for_the_end_of_a_source_holds_nobody_up():
    """Behind that source edges take barriers aligned, and wait for it; the source waits for room behind them."""
    plan = [Step("union", (0, 0, 1), 0, "default"), Step("map", (2,), 0, "default")]
    setting = Setting([3, 2, 1, 4, 1, 1, 1, 1, 1], [False] * 6, False, False, 1, [])
    check(plan, ([0] * 16, [0] * 15), setting, 0)


def check(plan, records, setting, seed) -> None:
    chance = random.Random(seed)
    streams = [Counter((value, value) for value in values) for values in records]
    for step in plan:
        streams += meaning(step, streams)
    expected = counted(
        ((i, v), n) for i, found in enumerate(streams) for (v, _), n in found.items()
    )
    setting = replace(setting, blocking=[False] * 6, batch=chance.randint(1, 6))
    sources = {f"source {number}": values for number, values in enumerate(records)}
    restored, rows = None, []
    for _ in range(chance.randint(1, 3)):
        with tempfile.TemporaryDirectory() as folder:
            job = UnalignedJob(built(plan, setting), sources, setting.batch, folder, restored)
            try:
                found = disturbed(job, chance)
                if found is not None:
                    restored = job.checkpoint(found)
            finally:
                job.close()
        if found is None:
            continue  # ended before any checkpoint: the attempt counts for nothing
        rows += restored.rows
        scaled = chance.sample([1, 2, 3, 4], 4)
        parallelisms = [scaled[one - 1] for one in setting.parallelisms]
        setting = replace(setting, parallelisms=parallelisms)
    with tempfile.TemporaryDirectory() as folder:
        job = UnalignedJob(built(plan, setting), sources, setting.batch, folder, restored)
        try:
            assert Counter(rows + job.run(setting.turns)) == expected
        finally:
            job.close()


class Keyed(KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key(), value


def by_key(parallelism):
    executor = FakeExecutor()
    env = StreamExecutionEnvironment.get_execution_environment().use_executor(executor)
    env.set_parallelism(parallelism)
    numbers = env.from_source(
        NumberSequenceSource(0, 1), WatermarkStrategy.no_watermarks(), "source"
    )
    keyed = numbers.set_parallelism(1).key_by(lambda value: value % 7, Types.LONG())
    keyed.process(Keyed()).execute_and_collect(limit=1)
    return executor.graph


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(1, 30), st.integers(0, 2**32)
)
def test_the_records_of_a_producer_and_a_key_keep_their_order(parallelisms, batch, seed):
    chance, records = random.Random(seed), list(range(100))
    restored, rows = None, []
    for parallelism in parallelisms[:-1]:
        with tempfile.TemporaryDirectory() as folder:
            job = UnalignedJob(by_key(parallelism), {"source": records}, batch, folder, restored)
            try:
                found = disturbed(job, chance)
                if found is not None:
                    restored = job.checkpoint(found)
                    rows += restored.rows
            finally:
                job.close()
    with tempfile.TemporaryDirectory() as folder:
        last = parallelisms[-1]
        job = UnalignedJob(by_key(last), {"source": records}, batch, folder, restored)
        try:
            rows += job.run([])
        finally:
            job.close()
    for key in range(7):
        assert [value for at, value in rows if at == key] == [v for v in records if v % 7 == key]
