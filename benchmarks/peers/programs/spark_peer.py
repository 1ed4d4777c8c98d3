"""Spark's own batch DataFrames: local[2], two shuffle partitions, adaptive execution on, Parquet.

Seconds: the query, sum included, within a session that has run it on little data already.
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
    return SparkSession.builder.master(f"local[{parallelism}]").config(map=settings).getOrCreate()


def word_count(spark, _form, folder):
    words = spark.read.text(folder).select(F.explode(F.split("value", " ")).alias("word"))
    n = F.col("count")
    return words.groupBy("word").count(), n * n + n * F.length("word")


def q1(spark, form, folder):
    euros = bids(spark, form, folder).withColumn("price", F.col("price") * F.lit(0.908))
    thousandths = F.round(F.col("price") * 1000).cast("long")
    parts = F.col("auction") + 3 * F.col("bidder") + 7 * thousandths
    return euros, parts + 11 * (F.col("ts") - BASE_MS) + 13 * F.length("extra")


def q5(spark, form, folder):
    timed = bids(spark, form, folder).withColumn("at", F.timestamp_millis("ts"))
    counts = timed.groupBy(F.window("at", "10 seconds", "2 seconds"), "auction").count()
    gathered = counts.groupBy("window").agg(
        F.collect_list(F.struct("count", "auction")).alias("all")
    )
    with_most = gathered.withColumn("most", F.array_max("all")["count"])
    best = with_most.select(
        F.unix_millis("window.end").alias("end"),
        F.explode(F.expr("filter(all, one -> one.count = most)")).alias("one"),
    )
    seconds = ((F.col("end") - BASE_MS) / 1000).cast("long")
    return best, 3 * F.col("one.auction") + 7 * F.col("one.count") + 11 * seconds


def bids(spark, form, folder):
    return spark.read.schema(BIDS).format(form).load(folder)


WORKLOADS = {"word_count": word_count, "q1": q1, "q5": q5}


def sums(spark, arguments, folder):
    rows, part = WORKLOADS[arguments.workload](spark, arguments.form, str(folder))
    found = rows.agg(F.count("*"), F.sum(part)).first()
    return found[0], found[1]


def main():
    arguments = Arguments()
    spark = session(arguments.parallelism)
    sums(spark, arguments, arguments.warm_input)
    started = time.time()
    found = sums(spark, arguments, arguments.input)
    tell(time.time() - started, found)
    spark.stop()


if __name__ == "__main__":
    main()
