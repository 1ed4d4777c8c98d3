"""How JVMs are started that live briefly: those of tests and of the audit. `python -m audit.jvm` makes what helps them to start.

Two thirds of the processor time of a Spark that runs one small job is the loading of classes. Java maps them from an archive instead,
which lies beside the packages of this Python: 8 s become 6 for a local session, 24 become 17 for a cluster of two executors.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import psutil

ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
_BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Nothing runs long enough to be worth compiling well, and many start beside each other."""
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""Another Java, or another Spark, goes on without the archive."""


def options(archive: Path) -> str:
    """The options of a JVM. Without an archive, or with an empty one, it loads its classes itself."""
    if not archive.exists() or not archive.stat().st_size:
        return _BRIEF
    return f"{_BRIEF} -XX:SharedArchiveFile={archive} {_QUIET}"


SHORT_LIVED_JVM: Final = options(ARCHIVE)


def main() -> None:
    """Write the archive at the end of a Spark that has done what most tests do."""
    made = ARCHIVE.with_suffix(".new")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_SUBMIT_OPTS"] = f"{_BRIEF} -XX:ArchiveClassesAtExit={made} {_QUIET}"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    spark.sparkContext.parallelize(range(4), 2).map(str).collect()
    spark.range(4).selectExpr("id % 2 AS k").groupBy("k").count().collect()
    spark.stop()
    jvms = [one for one in psutil.Process().children(recursive=True) if "java" in one.name()]
    for jvm in jvms:
        jvm.terminate()  # It writes the archive before it ends.
    psutil.wait_procs(jvms, 120)
    if made.exists():
        made.replace(ARCHIVE)


if __name__ == "__main__":
    main()
