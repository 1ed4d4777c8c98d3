"""Drivers that YARN starts again: said at submit, and refused where output would come twice. Expectations: issue of the field, Spark's keys."""

import pytest

from penstock.common import Encoder
from penstock.connectors.api.base import Committer, Sink
from penstock.connectors.file_system import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.engine.hosting.jobmanager.ha.settings import check_attempt
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.program.submitted_jobs import submitted_job
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError

YARN = {"spark.master": "yarn", "spark.submit.deployMode": "cluster"}
SECOND = {**YARN, "spark.app.attempt.id": "2"}


def job(folder=None):
    env = StreamExecutionEnvironment()
    numbers = env.from_collection([1])
    if folder is None:
        numbers.print()
    else:
        sink = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder()).build()
        numbers.sink_to(sink)
    graph = env.plumbing.stream_graph("numbers")
    return submitted_job(MiniCluster(), graph, env.plumbing.settings, Settings())[1]


def said(submitted, spark, **options):
    lines = []
    settings = {key.replace("__", "."): value for key, value in options.items()}
    check_attempt(submitted, Settings(settings), spark, lines.append)
    return lines


def test_what_will_happen_is_said_at_submit(tmp_path):
    (line,) = said(job(tmp_path), YARN)
    assert "YARN starts it again (spark.yarn.maxAppAttempts: not set" in line
    assert "penstock.driver.begins-anew" in line
    assert (
        "spark.yarn.maxAppAttempts: 3"
        in said(job(tmp_path), {**YARN, "spark.yarn.maxAppAttempts": "3"})[0]
    )


def test_a_second_attempt_does_not_begin_from_nothing(tmp_path):
    with pytest.raises(ConfigurationError, match=r"attempt 2 of the driver.*'numbers' would begin"):
        said(job(tmp_path), SECOND)


def test_the_savepoint_that_the_first_attempt_began_from_is_no_permission(tmp_path):
    options = {"execution__state-recovery__path": "/chk-7"}
    with pytest.raises(ConfigurationError, match=r"would begin from /chk-7, as the first attempt"):
        said(job(tmp_path), SECOND, **options)


def test_it_begins_anew_if_that_is_permitted(tmp_path):
    assert len(said(job(tmp_path), SECOND, **{"penstock__driver__begins-anew": "true"})) == 1


@pytest.mark.parametrize(
    "spark",
    [
        {},
        {"spark.master": "yarn", "spark.submit.deployMode": "client"},
        {**SECOND, "spark.yarn.maxAppAttempts": "1"},
        {"spark.master": "k8s://https://there", "spark.submit.deployMode": "cluster"},
    ],
)
def test_drivers_that_nobody_starts_again_say_nothing(tmp_path, spark):
    assert said(job(tmp_path), spark) == []


def test_output_that_may_come_twice_is_not_refused():
    assert said(job(), SECOND) == []


def test_with_high_availability_the_second_attempt_takes_over(tmp_path):
    options = {
        "high-availability__type": "FILE",
        "high-availability__cluster-id": "c",
        "high-availability__storageDir": str(tmp_path),
    }
    assert said(job(tmp_path), SECOND, **options) == []


class AsksOnce(Sink):
    """A sink whose committers can be made only once, as when each of them opens a transaction."""

    def __init__(self):
        self.made = 0

    def create_writer(self, context):
        raise AssertionError("nothing runs")

    def create_committer(self):
        self.made += 1
        return NothingToCommit()


class NothingToCommit(Committer):
    def commit(self, committables):
        raise AssertionError("nothing runs")

    def abort(self, job_prefix):
        raise AssertionError("nothing runs")


def test_no_committer_is_made_to_see_whether_there_is_one():
    env, sink = StreamExecutionEnvironment(), AsksOnce()
    env.from_collection([1]).sink_to(sink)
    graph = env.plumbing.stream_graph("numbers")
    submitted = submitted_job(MiniCluster(), graph, env.plumbing.settings, Settings())[1]
    before = sink.made
    assert len(said(submitted, YARN)) == 1
    assert sink.made == before
