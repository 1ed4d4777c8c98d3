"""Results of jobs as DataFrames: of a BATCH job Spark's lineage goes on, of a streaming one the files that it has written."""

from __future__ import annotations

import atexit
import secrets
import shutil
import tempfile
from typing import Any, Final

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from penstock.hosting.batch import spark_task
from penstock.hosting.dataframes.schemas import schema_of
from penstock.hosting.file_systems import joined, local_path
from penstock.model.errors import ConfigurationError
from penstock.model.types import TypeInformation
from penstock.runtime.codecs.convert import arrow_schema

_PREFIX: Final = "penstock-results-"


def frame_of_messages(
    spark: SparkSession, messages: RDD[bytes], type_info: TypeInformation
) -> DataFrame:
    """A DataFrame of Arrow messages without their schema. No row becomes a Python object; nothing runs yet."""
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

    decode.__module__ = "__main__"  # by value, like everything in the Spark closure
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    udf = UserDefinedFunction(decode, schema_of(type_info), evalType=kind)
    column = udf(*[packed[name] for name in packed.columns])
    return DataFrame(packed._jdf.mapInArrow(column._jc, False, None), spark)


def frame_of_files(spark: SparkSession, folder: str, type_info: TypeInformation) -> DataFrame:
    """Of Parquet files."""
    return spark.read.schema(schema_of(type_info)).parquet(folder)


def results_folder(configured: str | None, *, shares_files: bool) -> str:
    """A new folder for the results of a job that this process reads back: it goes with this process.

    Raises: ConfigurationError: there is none that driver and executors share.
    """
    name = f"{_PREFIX}{secrets.token_hex(8)}"
    folder = None if configured is None else local_path(configured)
    if folder is None and not shares_files:
        raise ConfigurationError(
            "to_spark of a streaming job and cache() keep results in files, and there is no directory that this driver and the "
            f"executors share: execution.checkpointing.dir is {configured!r}. Set it to a mounted directory. to_spark needs none in "
            "runtime mode BATCH."
        )
    own = tempfile.mkdtemp(prefix=_PREFIX) if folder is None else joined(folder, name)
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own
