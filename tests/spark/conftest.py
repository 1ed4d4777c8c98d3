"""Real Spark sessions for tests: one at a time, kept while the next test wants the same master."""

import os
import sys
from collections.abc import Callable, Iterator

import pytest

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


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

            builder = SparkSession.builder.master(master).appName("penstock-tests")
            builder = builder.config("spark.ui.enabled", "false")
            builder = builder.config("spark.driver.host", "127.0.0.1")
            builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
            builder = builder.config("spark.ui.showConsoleProgress", "false")
            builder = builder.config("spark.log.level", "OFF")
            builder = builder.config(
                "spark.speculation", "false"
            )  # the JVM keeps what it began with
            for key, value in conf.items():
                builder = builder.config(key.replace("_", "."), value)
            self.spark, self.wanted = builder.getOrCreate(), wanted
        return self.spark

    def stop(self) -> None:
        if self.spark is not None:
            self.spark.stop()
            self.spark = None


@pytest.fixture(scope="session")
def spark_on() -> Iterator[Callable[[str], object]]:
    sessions = Sessions()
    yield sessions.on
    sessions.stop()


@pytest.fixture
def spark(spark_on):
    return spark_on("local[4]")


@pytest.fixture
def spark_cluster(spark_on):
    return spark_on("local-cluster[2,3,1024]")
