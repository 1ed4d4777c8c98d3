"""The class archive of the embedded Spark: `python -m penstock.engine.hosting.spark.class_archive` writes it.

Java maps Spark's classes from it instead of loading each one. It lies in the folder of this Python's environment, and another Java
or another Spark starts without it. Source: Java's manual, "Class Data Sharing" (dynamic archives, Java 13 and newer).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

ARCHIVE: Final = Path(sys.prefix, "spark-classes.jsa")
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_END_S: Final = 120.0


def java_option() -> str:
    """Return the option with which Java uses the archive; "": there is none."""
    if not ARCHIVE.exists() or not ARCHIVE.stat().st_size:
        return ""
    return f'"-XX:SharedArchiveFile={ARCHIVE}" {_QUIET}'  # The folder's name may have spaces.


def main() -> None:
    """Write the archive at the end of a Spark that has run two small jobs."""
    made = ARCHIVE.with_suffix(".new")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f'-XX:TieredStopAtLevel=1 "-XX:ArchiveClassesAtExit={made}" {_QUIET}'
    )
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "OFF").getOrCreate()
    spark.sparkContext.parallelize(range(4), 2).map(str).collect()
    spark.range(4).selectExpr("id % 2 AS k").groupBy("k").count().collect()
    gateway = SparkContext._gateway
    spark.stop()
    assert gateway is not None
    java = gateway.proc
    java.terminate()  # It writes the archive before it ends.
    java.wait(_END_S)
    if not made.exists():
        raise SystemExit(
            f"penstock: Java has not written {made}. Spark starts without it, more slowly. "
            "Can this user write there?"
        )
    made.replace(ARCHIVE)
    print(f"penstock: {ARCHIVE} is written")


if __name__ == "__main__":
    main()
