"""Real Spark sessions for tests: one at a time, kept while the next test wants the same master.

Fixtures of all tests (tests/conftest.py names this module): a folder with fixtures of its own would have sessions of its own, and
Spark has one context in a process.
"""

import os
import sys
from collections.abc import Callable, Iterator

import pytest

from audit.jvm import SHORT_LIVED_JVM
from tests.spark.processes import taskmanagers_left

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)  # Of drivers that tests start.
LOCAL = "local[4]"
LOCAL_CLUSTER = "local-cluster[2,3,1024]"
COMMON = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
}
FAILS_FAST = {"spark_shuffle_io_maxRetries": "1", "spark_shuffle_io_retryWait": "1s"}
"""An executor that is gone is asked three times, with five seconds between, for what it has shuffled, unless one says so."""


class Sessions:
    def __init__(self) -> None:
        self.spark = None
        self.wanted = ("", {})

    def on(self, master: str, **conf: str):
        """`conf`: Spark's, with `_` for `.`."""
        wanted = (master, conf)
        if self.spark is None or self.wanted != wanted or self.spark.sparkContext._jsc is None:
            self.stop()
            from pyspark.sql import SparkSession

            begin_jvm()
            builder = SparkSession.builder.master(master).appName("penstock-tests")
            asked = {key.replace("_", "."): value for key, value in conf.items()}
            self.spark = builder.config(map=COMMON | asked).getOrCreate()
            self.wanted = wanted
            assert self.spark.sparkContext.master == master, "somebody else's session"
        return self.spark

    def stop(self) -> None:
        if self.spark is not None:
            self.spark.stop()
            self.spark = None


def begin_jvm() -> None:
    """It keeps the settings that it is begun with, for all sessions: so those that are common to all."""
    from pyspark import SparkConf, SparkContext

    from penstock.engine.hosting.spark.session import UNNAMED

    common = SparkConf(loadDefaults=False).setAll(list(COMMON.items()))
    # Nobody has named a master, for tests of the embedded session.
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("MASTER", UNNAMED)
        SparkContext._ensure_initialized(conf=common)


def foreign_context(sessions: Sessions):
    """The SparkContext that is active in this process and not that of `sessions`."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    return None if sessions.spark and active is sessions.spark.sparkContext else active


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    kept = Sessions()
    yield kept
    kept.stop()


@pytest.fixture(scope="session")
def spark_on(sessions) -> Callable[[str], object]:
    return sessions.on


@pytest.fixture
def spark(spark_on):
    return spark_on(LOCAL)


@pytest.fixture
def spark_cluster(spark_on):
    return spark_on(LOCAL_CLUSTER, **FAILS_FAST)


# ruff: ignore[pytest-fixture-autouse] - nobody asks to be watched
@pytest.fixture(scope="module", autouse=True)
def nothing_is_left(sessions) -> Iterator[None]:
    """A module that leaves a context of its own, or TaskManagers, is the one that fails, and none that comes after it."""
    yield
    left, alive = foreign_context(sessions), taskmanagers_left()
    if left is not None:
        left.stop()
    for process in alive:
        process.kill()
    assert left is None, f"a SparkContext on {left.master} was left behind"
    assert not alive, f"TaskManagers were left behind: {alive}"
