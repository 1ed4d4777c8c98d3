"""Results of jobs as DataFrames: the lineage of a BATCH job, or the files that a streaming job has written."""

from __future__ import annotations

from typing import Any

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from penstock.engine.hosting.spark.batch import spark_task
from penstock.engine.hosting.spark.dataframes.schemas import schema_of
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.convert import arrow_schema


def frame_of_messages(
    spark: SparkSession, messages: RDD[bytes], type_info: TypeInformation
) -> DataFrame:
    """Return a DataFrame of Arrow messages without their schema. No row becomes a Python object,
    and nothing runs yet.
    """
    messages._bypass_serializer = True
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    encoder = jvm.org.apache.spark.sql.Encoders.BINARY()
    packed = DataFrame(
        spark._jsparkSession.createDataset(messages._jrdd.rdd(), encoder).toDF(), spark
    )
    schema, decoded = arrow_schema(type_info), spark_task.decoded

    def decode(batches: Any) -> Any:
        return decoded(schema, batches)

    decode.__module__ = "__main__"  # Pickled by value, like everything in the Spark closure.
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    udf = UserDefinedFunction(decode, schema_of(type_info), evalType=kind)
    column = udf(*[packed[name] for name in packed.columns])
    return DataFrame(packed._jdf.mapInArrow(column._jc, False, None), spark)


def frame_of_files(spark: SparkSession, folder: str, type_info: TypeInformation) -> DataFrame:
    """Return a DataFrame of Parquet files."""
    return spark.read.schema(schema_of(type_info)).parquet(folder)
