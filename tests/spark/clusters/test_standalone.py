"""A standalone master with one worker, both processes of their own, on loopback."""

import pytest

from penstock.engine.hosting.spark import slots as spark_slots
from penstock.engine.model.errors import NoResourceAvailable
from tests.spark.programs import LINES, environment, expected_counts, last_counts, word_count
from tests.spark.sessions import LOCAL
from tests.spark.standalone import standalone

pytestmark = pytest.mark.spark
CORES = 3


@pytest.fixture(scope="module")
def cluster(spark_on, tmp_path_factory):
    with standalone(tmp_path_factory.mktemp("standalone"), ["127.0.0.1"], CORES) as master:
        yield spark_on(master)
        spark_on(LOCAL)  # leave the master before it goes


def test_word_count_on_a_standalone_master(cluster):
    counts = word_count(environment(2))
    with counts.execute_and_collect("on standalone") as updates:
        assert last_counts(updates) == expected_counts()


def test_more_taskmanagers_than_cores_are_refused(cluster, monkeypatch):
    monkeypatch.setattr(spark_slots, "_EXECUTORS_WAIT_S", 0.0)  # there is one, and it is there
    env = environment(CORES + 1)
    env.from_collection(LINES).rebalance().map(str).print()
    with pytest.raises(NoResourceAvailable, match=f"{CORES + 1}.*{CORES}"):
        env.execute("too wide")
