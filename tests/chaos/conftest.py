"""The same Spark sessions as the spark tests."""

from tests.spark.conftest import spark, spark_cluster, spark_on  # noqa: F401
