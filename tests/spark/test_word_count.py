"""The main path on Spark, embedded-style: `local[4]`."""

import os
import threading
from collections import Counter

import pytest

from penstock.engine.model.errors import JobExecutionError, NoResourceAvailable
from tests.spark.processes import taskmanagers_left
from tests.spark.programs import LINES, environment, expected_counts, last_counts, word_count
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    "parallelism", [*(pytest.param(one, marks=pytest.mark.long) for one in (1, 2)), 3]
)
def test_counts_equal_a_counter_at_any_parallelism(spark, parallelism):
    with word_count(environment(parallelism)).execute_and_collect() as updates:
        rows = list(updates)
    assert last_counts(rows) == expected_counts()
    assert Counter(word for word, _ in rows) == expected_counts()  # one update per word


def test_five_subtasks_share_two_taskmanagers(spark):
    env = environment(5, **{"taskmanager.numberOfTaskSlots": "3"})
    with word_count(env).execute_and_collect() as updates:
        assert last_counts(updates) == expected_counts()


def test_print_reaches_the_drivers_console_in_pyflinks_form(spark, capfd):
    env = environment(2)
    env.from_collection(["a", "b", "a"]).map(lambda v: (v, 1)).key_by(lambda t: t[0]).print()
    env.execute("print")
    lines = capfd.readouterr().out.splitlines()
    assert sorted(line.split("> ", 1)[1] for line in lines) == ["('a', 1)", "('a', 1)", "('b', 1)"]
    assert {line.split("> ", 1)[0] for line in lines} <= {"1", "2"}
    assert len({line for line in lines if "'a'" in line}) == 1  # one key, one subtask


def test_what_a_function_prints_appears_with_its_operator(spark, capfd):
    env = environment(1)
    env.from_collection([1]).map(lambda v: print("hello from", v)).name("Greet").print()
    env.execute("user output")
    assert "[Greet 1] hello from 1" in capfd.readouterr().out


def test_a_user_error_is_shown_first_with_operator_record_and_source_line(spark):
    env = environment(2)
    env.from_collection([1, 2, 0, 4]).map(lambda v: 10 // v).name("Divide").print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute("fails")
    text = str(caught.value)
    assert "ZeroDivisionError" in text and "10 // v" in text
    assert "in operator: Divide" in text
    assert "at record:   0" in text
    assert (
        "/penstock/engine/runtime/" not in text
    )  # Nor other frames of ours, which say nothing to users.
    assert "test_word_count.py:" in text.split("built at:")[1].splitlines()[0]


def test_the_next_spark_job_sees_a_clean_worker(spark):
    def probe(_rows):
        import sys

        names = [name for name in sys.modules if name.split(".")[0] == "penstock"]
        yield threading.active_count(), names

    with word_count(environment(2)).execute_and_collect() as updates:
        list(updates)
    seen = spark.sparkContext.parallelize([0] * 4, 4).mapPartitions(probe).collect()
    assert seen == [(1, [])] * 4


def test_nothing_is_left_after_a_job(spark):
    before = set(threading.enumerate())
    with word_count(environment(2)).execute_and_collect() as updates:
        list(updates)
    assert not taskmanagers_left()

    def left():
        """The session keeps one thread for its workers."""
        new = {thread.name for thread in set(threading.enumerate()) - before}
        return [name for name in new - {"penstock-workers"} if name.startswith("penstock")]

    wait_until(lambda: not left(), "threads of ours are left")


def test_a_function_that_never_returns_is_cancelled(spark, tmp_path):
    fifo = str(tmp_path / "entered")
    os.mkfifo(fifo)

    def stuck(_value):
        import time

        with open(fifo, "w") as entered:
            entered.write("yes")
        time.sleep(1e9)

    env = environment(1)
    env.from_collection([1]).map(stuck).print()
    client = env.execute_async("stuck")
    with open(fifo) as entered:
        assert entered.read() == "yes"
    client.cancel().result()
    with pytest.raises(JobExecutionError):
        client.get_job_execution_result().result()
    assert client.get_job_status().result().name == "CANCELED"
    assert not taskmanagers_left()


def test_too_many_slots_are_refused_before_anything_starts(spark):
    env = environment(7)
    env.from_collection(LINES).rebalance().map(len).print()
    with pytest.raises(NoResourceAvailable, match=r"7 slots.*local\[4\] gives 4"):
        env.execute("too large")
