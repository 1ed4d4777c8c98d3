"""Spark of the version that Delta Lake and Iceberg have jars for, in a process and an environment of its own: it knows nothing of ours."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil

from tests.tools.connectors import iceberg_tables
from tests.tools.connectors.iceberg_tables import Lake
from tests.tools.small_servers import ServerMissing, only_with_the_mark

HOME = Path(sys.prefix, "lakehouse-readers")
"""What `make lakehouse-readers` has installed."""
PROGRAM = Path(__file__).parents[1] / "programs" / "spark_sql.py"
OURS = ("PYTHON", "PYSPARK", "SPARK")
"""Variables that would lead it to our Spark."""
END_S = 30
CATALOG = f"spark.sql.catalog.{iceberg_tables.CATALOG}"
SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Not UTC: an instant that is written without a zone would be another one.
    "spark.driver.extraJavaOptions": "-Duser.timezone=Asia/Kolkata -XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class SparkTables:
    """Its JVM starts meanwhile: the first answer waits for it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def answer(self, query: str) -> dict[str, Any]:
        """`columns`: pairs of name and type. `rows`: lists of values as JSON has them, other values as texts, instants in UTC."""
        self._process.stdin.write(f"{query}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()
        found = json.loads(answer, parse_constant=str)  # NaN is not equal to itself.
        assert "error" not in found, found["error"]
        return found

    def rows(self, query: str) -> list[list[Any]]:
        return self.answer(query)["rows"]

    def records(self, query: str) -> list[dict[str, Any]]:
        found = self.answer(query)
        names = [name for name, _ in found["columns"]]
        return [dict(zip(names, row, strict=True)) for row in found["rows"]]

    def open(self, lake: Lake) -> None:
        """Begin a session whose catalog `lake` this is. Its database has the name, so two lakes cannot be there at once."""
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            ".uri": f"jdbc:{lake.properties['uri'].replace(':///', ':')}",
            ".warehouse": lake.properties["warehouse"],
            ".jdbc.schema-version": "V1",
        }
        self.answer(json.dumps({f"{CATALOG}{key}": value for key, value in settings.items()}))


def as_json(rows: Any) -> list[list[Any]]:
    """Values of Python as `answer` gives them."""
    made = json.dumps([list(row) for row in rows], default=_text)
    return json.loads(made, parse_constant=str)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value)


@contextlib.contextmanager
def spark_tables() -> Generator[SparkTables]:
    only_with_the_mark()
    if not (HOME / ".ready").exists():
        raise ServerMissing(f"no Spark is in {HOME}. Run `make lakehouse-readers`.")
    jars = ",".join(map(str, sorted((HOME / "delta-and-iceberg").glob("*.jar"))))
    with tempfile.TemporaryDirectory(prefix="spark-tables-") as folder:
        own = {"spark.jars": jars, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        settings = [f"{key}={value}" for key, value in {**SETTINGS, **own}.items()]
        kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        log = Path(folder, "log")
        with log.open("w") as errors:
            process = subprocess.Popen(
                [str(HOME / "bin" / "python"), str(PROGRAM), *settings],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                text=True, cwd=folder, env={**kept, "SPARK_LOCAL_DIRS": folder},
            )  # fmt: skip
        try:
            yield SparkTables(process, log)
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    process.stdin.close()
    _, alive = psutil.wait_procs(family, timeout=END_S)
    for one in alive:
        one.kill()
    process.wait()
    process.stdout.close()
