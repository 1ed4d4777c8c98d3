"""Spark's own batch DataFrames: local[2], two shuffle partitions, adaptive execution on, Parquet.

Seconds: the query, sum included, within a session that has run one small query already.
"""

import os
import sys
import time

from checks import BASE_MS, Arguments, tell

os.environ["PYSPARK_PYTHON"] = sys.executable

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

BIDS = "auction long, bidder long, price long, ts long, extra string"


def session(parallelism):
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": str(parallelism),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master(f"local[{parallelism}]").config(map=settings).getOrCreate()
    spark.range(1).count()
    return spark


def word_count(spark, arguments):
    words = spark.read.text(str(arguments.input)).select(
        F.explode(F.split("value", " ")).alias("word")
    )
    n = F.col("count")
    return words.groupBy("word").count(), n * n + n * F.length("word")


def q1(spark, arguments):
    euros = bids(spark, arguments).withColumn("price", F.col("price") * F.lit(0.908))
    thousandths = F.round(F.col("price") * 1000).cast("long")
    parts = F.col("auction") + 3 * F.col("bidder") + 7 * thousandths
    return euros, parts + 11 * (F.col("ts") - BASE_MS) + 13 * F.length("extra")


def q5(spark, arguments):
    timed = bids(spark, arguments).withColumn("at", F.timestamp_millis("ts"))
    counts = timed.groupBy(F.window("at", "10 seconds", "2 seconds"), "auction").count()
    gathered = counts.groupBy("window").agg(
        F.collect_list(F.struct("count", "auction")).alias("all")
    )
    best = gathered.select(
        F.unix_millis("window.end").alias("end"),
        F.explode(F.expr("filter(all, one -> one.count = array_max(all).count)")).alias("one"),
    )
    seconds = ((F.col("end") - BASE_MS) / 1000).cast("long")
    return best, 3 * F.col("one.auction") + 7 * F.col("one.count") + 11 * seconds


def bids(spark, arguments):
    return spark.read.schema(BIDS).format(arguments.form).load(str(arguments.input))


WORKLOADS = {"word_count": word_count, "q1": q1, "q5": q5}


def main():
    arguments = Arguments()
    spark = session(arguments.parallelism)
    started = time.time()
    rows, part = WORKLOADS[arguments.workload](spark, arguments)
    found = rows.agg(F.count("*"), F.sum(part)).first()
    tell(time.time() - started, (found[0], found[1]))
    spark.stop()


if __name__ == "__main__":
    main()
