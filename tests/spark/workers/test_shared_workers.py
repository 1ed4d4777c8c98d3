"""Jobs of one session use the same processes, one after the other and at once, and nothing of one job reaches the next."""

import contextlib
import os
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream import MapFunction
from penstock.datastream.connectors import DataGeneratorSource
from penstock.engine.hosting.spark import slots
from penstock.engine.hosting.spark.session_workers import idle_workers
from penstock.engine.hosting.spark.slots import SparkSlots
from penstock.engine.model.errors import JobExecutionError, NoResourceAvailable
from tests.spark.processes import end_idle_workers, taskmanagers, taskmanagers_left
from tests.spark.programs import environment
from tests.spark.waiting import until_there
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark

ISOLATED = {"penstock.cluster.job-isolation": "true"}
TWO_SLOTS = {"taskmanager.numberOfTaskSlots": "2"}


# ruff: ignore[pytest-fixture-autouse] - every test is about who is there before
@pytest.fixture(autouse=True)
def cold(spark):
    """Each test begins without workers."""
    assert not taskmanagers_left()


def sharing(parallelism, **settings):
    """The environment of a job that shares its workers, if the settings do not say otherwise: that is the default."""
    return environment(parallelism, **settings)


def told(call, parallelism=2, **settings):
    """What a function says of the process in which it runs, as often as there are subtasks."""
    env = sharing(parallelism, **settings)
    with env.from_collection([0]).map(lambda _: call()).execute_and_collect() as rows:
        return list(rows)


def ours_in_tmp():
    return {path.name for path in Path(tempfile.gettempdir()).glob("penstock-*")}


def pid(**settings):
    (found,) = told(os.getpid, 1, **settings)
    return found


def endless(env, folder, name):
    """A job that runs until it is cancelled; a file says that it does."""

    def begun(number):
        Path(folder, name).write_text(str(os.getpid()), encoding="utf-8")
        return number

    source = DataGeneratorSource(lambda number: number, None, 10.0)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.map(begun).print()
    client = env.execute_async(name)
    until_there(Path(folder, name))
    wait_until(lambda: Path(folder, name).read_text(), "the function has not said where it is")
    return client, int(Path(folder, name).read_text())


def test_two_jobs_in_a_row_use_the_same_processes(spark):
    def pids():
        env = sharing(2)
        numbers = env.from_collection(list(range(100))).rebalance()
        with numbers.map(lambda _: os.getpid()).execute_and_collect() as rows:
            return set(rows)

    first = pids()
    assert len(first) == 2
    assert pids() == first
    assert {process.pid for process in taskmanagers()} == first


def test_nothing_that_a_function_changes_reaches_the_next_job(spark):
    def change():
        import logging
        import tempfile

        os.environ["CHANGED"] = "yes"
        os.chdir(tempfile.gettempdir())
        sys.path.insert(0, "/changed")
        sys.setswitchinterval(0.5)
        logging.getLogger().addHandler(logging.StreamHandler())
        logging.getLogger("changed").setLevel(logging.DEBUG)
        return os.getpid()

    def look():
        import logging

        return (
            os.getpid(),
            os.environ.get("CHANGED"),
            os.getcwd(),
            "/changed" in sys.path,
            sys.getswitchinterval(),
            len(logging.getLogger().handlers),
            logging.getLogger("changed").level,
        )

    (before,) = told(look, 1)
    (changed,) = told(change, 1)
    (after,) = told(look, 1)
    assert changed == before[0]
    assert after == before


def test_what_penstock_opens_for_a_job_is_closed_with_it(spark):
    def look():
        links = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing itself
                links.append(os.readlink(f"/proc/self/fd/{number}"))
        return os.getpid(), threading.active_count(), len(links)

    _first, *later = [told(look, 1)[0] for _ in range(4)]
    assert len(set(later)) == 1, later


def test_what_a_job_keeps_in_a_module_the_next_job_does_not_find(spark, tmp_path):
    """PyFlink runs the functions of each job in processes of its own."""
    module = tmp_path / "cache_of_this_test.py"
    module.write_text("SEEN = []\n", encoding="utf-8")

    def seen():
        import cache_of_this_test

        cache_of_this_test.SEEN.append(1)
        return os.getpid(), len(cache_of_this_test.SEEN)

    def run():
        env = sharing(1)
        env.add_python_file(str(module))
        with env.from_collection([0]).map(lambda _: seen()).execute_and_collect() as rows:
            return next(rows)

    assert run() == run()


def test_a_class_of_the_program_begins_anew_in_each_job(spark):
    class Counting(MapFunction):
        calls = 0

        def map(self, value):
            type(self).calls += 1
            return os.getpid(), type(self).calls

    def run():
        with sharing(1).from_collection([0]).map(Counting()).execute_and_collect() as rows:
            return next(rows)

    assert run() == run()


def test_the_memory_of_a_job_goes_back_to_the_system(spark):
    def fill():
        import resource

        kept = [bytes(1000) for _ in range(300_000)]
        return os.getpid(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, len(kept)

    (where, most_kb, _), *_ = told(fill, 1)
    process = psutil.Process(where)
    wait_until(
        lambda: process.memory_info().rss / 1024 < most_kb - 200_000,
        "the process keeps what its last job has used",
    )


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
def test_a_job_that_does_not_finish_leaves_nothing_either(spark, tmp_path, ends):
    """Files, sockets, threads and folders, as by a job that finishes."""

    def look():
        links = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # that of the listing itself
                links.append(os.readlink(f"/proc/self/fd/{number}"))
        return os.getpid(), threading.active_count(), len(links)

    def fail(_):
        raise ValueError("by design")

    told(look, 1)
    (before,) = told(look, 1)
    folders = ours_in_tmp()
    if ends == "fails":
        env = sharing(1)
        env.from_collection([0]).map(fail).print()
        with pytest.raises(Exception, match="by design"):
            env.execute()
    else:
        client, where = endless(sharing(1), tmp_path, "endless")
        assert where == before[0]
        client.cancel().result()
        with pytest.raises(JobExecutionError):
            client.get_job_execution_result().result()
    (after,) = told(look, 1)
    assert after == before
    assert ours_in_tmp() == folders


def test_a_process_that_cannot_begin_says_why(spark):
    """Not only that its connection was closed. Python refuses the setting in the process itself."""
    settings = {"penstock.exchange.switch-interval": "0 ms"}
    with pytest.raises(JobExecutionError, match="ValueError: switch interval must be"):
        told(os.getpid, 1, **settings)


def test_a_thread_that_a_function_leaves_costs_its_process(spark):
    def leave():
        threading.Thread(target=threading.Event().wait, name="left", daemon=True).start()
        return os.getpid()

    (left,) = told(leave, 1)
    wait_until(lambda: not psutil.pid_exists(left), "the process stays, and so does the thread")
    assert pid() != left


def test_jobs_with_other_modules_do_not_share_and_those_with_the_same_do(spark, tmp_path):
    module = tmp_path / "prices_of_this_test.py"

    def price():
        import prices_of_this_test

        return os.getpid(), prices_of_this_test.PRICE

    def run(value):
        module.write_text(f"PRICE = {value}\n", encoding="utf-8")
        env = sharing(1)
        env.add_python_file(str(module))
        with env.from_collection([0]).map(lambda _: price()).execute_and_collect() as rows:
            return next(rows)

    first, again, other = run(1), run(1), run(2)
    assert first == again
    assert other[1] == 2, "a stale module was served"
    assert other[0] != first[0]


def test_a_module_that_only_executors_see_is_never_stale(spark, tmp_path):
    module = tmp_path / "seen_by_executors_only.py"

    def price():
        sys.path.insert(0, str(tmp_path))
        import seen_by_executors_only

        return os.getpid(), seen_by_executors_only.PRICE

    def run(value):
        module.write_text(f"PRICE = {value}\n", encoding="utf-8")
        return told(price, 1)[0]

    # Of another length: Python's own cache of bytecode does not tell files of one second and length apart.
    first, second = run(1), run(20)
    assert (first[1], second[1]) == (1, 20)
    assert first[0] != second[0]


def test_a_job_that_asks_for_isolation_has_processes_of_its_own(spark):
    shared = pid()
    alone = pid(**ISOLATED)
    assert alone != shared
    assert pid(**ISOLATED) not in {alone, shared}
    assert pid() == shared


def test_the_python_workers_of_spark_are_used_again_when_a_taskmanager_ends(spark):
    """To start a worker, Spark takes a quarter of a second."""
    supervisor = told(os.getppid, 1, **ISOLATED)[0]
    context = spark.sparkContext
    cores = context.defaultParallelism
    workers = context.parallelize(range(cores), cores).barrier()

    def is_used_again():
        return supervisor in workers.mapPartitions(lambda _: [os.getpid()]).collect()

    # Spark takes its idle workers in turn; other tests may have left more of them than there are cores.
    wait_until(is_used_again, "the worker of the supervisor is not used again")


def test_two_jobs_at_once_share_the_slots_of_a_process(spark, tmp_path):
    client, where = endless(sharing(1, **TWO_SLOTS), tmp_path, "first")
    assert pid(**TWO_SLOTS) == where
    other, elsewhere = endless(sharing(1, **TWO_SLOTS), tmp_path, "second")
    assert elsewhere == where
    client.cancel().result()
    assert other.get_job_status().result().name == "RUNNING"
    other.cancel().result()


def test_a_process_that_dies_with_two_jobs_costs_both_a_restart_and_nothing_else(spark, tmp_path):
    settings = {
        **TWO_SLOTS,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "0 s",
    }
    jobs = [endless(sharing(1, **settings), tmp_path, name) for name in ("first", "second")]
    assert jobs[0][1] == jobs[1][1]
    psutil.Process(jobs[0][1]).kill()

    def came_back(name):
        return Path(tmp_path, name).read_text() not in {"", str(jobs[0][1])}

    for name in ("first", "second"):
        wait_until(lambda name=name: came_back(name), f"{name} does not run again")
    for client, _ in jobs:
        client.cancel().result()


def test_a_process_that_dies_while_idle_is_replaced(spark):
    first = pid()
    psutil.Process(first).kill()
    assert pid() != first


def test_an_idle_process_ends_after_the_timeout_with_its_spark_job(spark):
    first = pid(**{"resourcemanager.taskmanager-timeout": "300 ms"})
    wait_until(lambda: not psutil.pid_exists(first), "it is idle and does not end")
    tracker = spark.sparkContext.statusTracker()
    wait_until(lambda: not tracker.getActiveJobsIds(), "its Spark job is not over")


def test_idle_processes_make_room_for_sparks_own_tasks(spark):
    """local[4]: four idle workers hold all cores, for an hour unless somebody needs them."""
    env = sharing(4, **{"resourcemanager.taskmanager-timeout": "1 h"})
    numbers = env.from_collection(list(range(100))).rebalance()
    with numbers.map(lambda _: os.getpid()).execute_and_collect() as rows:
        assert len(set(rows)) == 4
    assert len(idle_workers(spark.sparkContext)) == 4
    assert spark.range(8, numPartitions=1).count() == 8


def test_idle_processes_of_another_kind_make_room_for_a_job(spark):
    env = sharing(4, **{"resourcemanager.taskmanager-timeout": "1 h"})
    with env.from_collection([0] * 8).rebalance().map(lambda _: 1).execute_and_collect() as rows:
        assert len(list(rows)) == 8
    assert len(idle_workers(spark.sparkContext)) == 4
    env = sharing(8, **TWO_SLOTS)
    with env.from_collection([0] * 8).rebalance().map(lambda _: 1).execute_and_collect() as rows:
        assert len(list(rows)) == 8


def test_idle_processes_hold_task_slots_and_make_room_for_a_job_that_shares_none(spark):
    env = sharing(4, **{"resourcemanager.taskmanager-timeout": "1 h"})
    with env.from_collection([0] * 8).rebalance().map(lambda _: 1).execute_and_collect() as rows:
        assert len(list(rows)) == 8
    assert "4 task slots, 4 of them in use" in SparkSlots(spark.sparkContext).describe()
    env = sharing(4, **ISOLATED)
    with env.from_collection([0] * 8).rebalance().map(lambda _: 1).execute_and_collect() as rows:
        assert len(list(rows)) == 8


def test_a_job_that_is_too_large_is_refused_although_idle_processes_could_serve_part_of_it(
    spark, monkeypatch
):
    monkeypatch.setattr(slots, "_EXECUTORS_WAIT_S", 0.5)
    assert len(told(os.getpid, 2)) == 1
    env = sharing(5)
    env.from_collection([0] * 8).rebalance().map(lambda _: 1).print()
    with pytest.raises(NoResourceAvailable, match="needs 5 slots.*only 4 can be started"):
        env.execute("too large")


def test_a_session_that_stops_takes_idle_processes_along(spark, sessions):
    first = pid()
    assert psutil.pid_exists(first)
    sessions.stop()
    assert not psutil.pid_exists(first)


def test_a_new_session_has_workers_of_its_own(spark):
    first = pid()
    assert pid() == first
    end_idle_workers()
    assert not taskmanagers_left()
    assert pid() != first
