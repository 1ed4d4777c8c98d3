"""A Spark that answers SQL: `python spark_sql.py KEY=VALUE...`, with settings of Spark. A line of stdin is a query, or
the settings of a new session as JSON; a line of stdout is the answer as JSON.

Runs in an environment that has PySpark and nothing of ours. Instants are given as UTC has them, whatever time zone Spark has.
"""

import json
import os
import sys
import time


def plain(value):
    """For JSON, of what it does not know."""
    return bytes(value).hex() if isinstance(value, (bytes, bytearray)) else str(value)


def answer(spark, query):
    try:
        found = spark.sql(query)
        columns = [[one.name, one.dataType.simpleString()] for one in found.schema]
        return {"columns": columns, "rows": [list(row) for row in found.collect()]}
    except Exception as error:
        return {"error": f"{query}\n{error}"}


def main(settings):
    from pyspark.sql import SparkSession

    os.environ["TZ"] = "UTC"
    time.tzset()
    builder = SparkSession.builder
    for key, _, value in (one.partition("=") for one in settings):
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        found = {}
        if line.startswith("{"):
            spark = spark.newSession()
            for key, value in json.loads(line).items():
                spark.conf.set(key, value)
        else:
            found = answer(spark, line)
        print(json.dumps(found, default=plain), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
