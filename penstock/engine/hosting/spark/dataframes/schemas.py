"""Conversion of Spark's schemas to types of streams, and back.

A column without a counterpart is refused with its path, before anything runs.
docs/guides/dataframes.md has the table.

Results of jobs as DataFrames: the lineage of a BATCH job, or the files that a streaming job has written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as s
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from penstock.engine.hosting.spark.batch import spark_task
from penstock.engine.model import types as t
from penstock.engine.model.errors import GraphError
from penstock.engine.model.types import TypeInformation
from penstock.engine.runtime.codecs.convert import arrow_schema, is_columnar

_SIMPLE: Final[Sequence[tuple[type[s.DataType], t.TypeInformation]]] = (
    (s.BooleanType, t.Types.BOOLEAN()),
    (s.ByteType, t.Types.BYTE()),
    (s.ShortType, t.Types.SHORT()),
    (s.IntegerType, t.Types.INT()),
    (s.LongType, t.Types.LONG()),
    (s.FloatType, t.Types.FLOAT()),
    (s.DoubleType, t.Types.DOUBLE()),
    (s.StringType, t.Types.STRING()),
    (s.BinaryType, t.Types.PRIMITIVE_ARRAY(t.Types.BYTE())),
    (s.DateType, t.Types.SQL_DATE()),
    (s.TimestampType, t.Types.TIMESTAMP_LTZ()),
    (s.TimestampNTZType, t.Types.SQL_TIMESTAMP()),
)
_OF_BASIC: Final = {
    t.BasicType.STRING: s.StringType(),
    t.BasicType.CHAR: s.StringType(),
    t.BasicType.BOOLEAN: s.BooleanType(),
    t.BasicType.BYTE: s.ByteType(),
    t.BasicType.SHORT: s.ShortType(),
    t.BasicType.INT: s.IntegerType(),
    t.BasicType.LONG: s.LongType(),
    t.BasicType.FLOAT: s.FloatType(),
    t.BasicType.DOUBLE: s.DoubleType(),
}


def type_of(schema: s.StructType) -> t.RowTypeInfo:
    """Return the ROW type of a DataFrame's schema. Raises: GraphError: a column has no counterpart,
    or two have the same name.
    """
    return _row_of(schema, "")


def schema_of(type_info: t.TypeInformation | None) -> s.StructType:
    """Return the schema of the DataFrame that a stream of this type becomes.

    Its columns are the fields of a ROW, f0, f1 ... of a TUPLE, else `value`. Raises: GraphError:
    the type is not declared, or a part of it has no counterpart.
    """
    if type_info is None or t.is_pickled(type_info):
        raise GraphError(
            "a stream needs a declared type to become a DataFrame, and this one has none. "
            "Declare it where the stream is made, as in map(f, "
            "output_type=Types.ROW_NAMED([...], [...])), or here: to_spark(output_type=...)."
        )
    found = _spark_of(type_info, "")
    return (
        found if isinstance(found, s.StructType) else s.StructType([s.StructField("value", found)])
    )


def _row_of(schema: s.StructType, path: str) -> t.RowTypeInfo:
    names = schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        where = f"the struct {path}" if path else "the DataFrame"
        raise GraphError(
            f"{where} has several columns named {', '.join(twice)}, but the fields of a Row "
            "must have different names. Rename them, for instance with df.toDF(...)."
        )
    if not names:
        raise GraphError(
            f"{path or 'the DataFrame'} has no columns, so there is nothing to read. Select "
            "at least one column."
        )
    inside = path + "." if path else ""
    return t.RowTypeInfo([_type_of(f.dataType, inside + f.name) for f in schema], names)


def _type_of(kind: s.DataType, path: str) -> t.TypeInformation:
    if isinstance(kind, s.DecimalType):
        return t.Types.DECIMAL(kind.precision, kind.scale)
    if isinstance(kind, s.ArrayType):
        return t.Types.LIST(_type_of(kind.elementType, f"{path}.element"))
    if isinstance(kind, s.MapType):
        return t.Types.MAP(
            _type_of(kind.keyType, f"{path}.key"), _type_of(kind.valueType, f"{path}.value")
        )
    if isinstance(kind, s.StructType):
        return _row_of(kind, path)
    for spark_type, type_info in _SIMPLE:
        if isinstance(kind, spark_type):
            return type_info
    raise GraphError(
        f"column {path} is of Spark's type {kind.simpleString()}, which has no counterpart in "
        "Penstock. Cast it, for instance to STRING or BIGINT, or leave it out with "
        "df.drop(...)."
    )


def _spark_of(type_info: t.TypeInformation, path: str) -> s.DataType:  # ruff: ignore[too-many-return-statements] - a dispatch by type
    if isinstance(type_info, t.RowTypeInfo):
        return _struct(type_info.get_field_types(), type_info.get_field_names(), path)
    if isinstance(type_info, t.TupleTypeInfo):
        types = type_info.get_field_types()
        return _struct(types, [f"f{index}" for index in range(len(types))], path)
    if isinstance(type_info, t.ExternalTypeInfo):
        return _spark_of(type_info.element_type, path)
    if isinstance(type_info, t.MapTypeInfo):
        key, value = f"{path}.key", f"{path}.value"
        return s.MapType(_spark_of(type_info.key_type, key), _spark_of(type_info.value_type, value))
    if type_info == t.Types.PRIMITIVE_ARRAY(t.Types.BYTE()):
        return s.BinaryType()
    if isinstance(type_info, t.ElementTypeInfo):
        return s.ArrayType(_spark_of(type_info.element_type, f"{path}.element"))
    return _spark_of_one(type_info, path)


def _spark_of_one(type_info: t.TypeInformation, path: str) -> s.DataType:
    if isinstance(type_info, t.DecimalTypeInfo):
        return s.DecimalType(type_info.precision, type_info.scale)
    if isinstance(type_info, t.BasicTypeInfo) and type_info.basic_type in _OF_BASIC:
        return _OF_BASIC[type_info.basic_type]
    for spark_type, simple in _SIMPLE:
        if simple == type_info:
            return spark_type()
    return _refuse(type_info, path)


def _struct(types: Sequence[t.TypeInformation], names: Sequence[str], path: str) -> s.StructType:
    inside = path + "." if path else ""
    fields = [
        s.StructField(name, _spark_of(one, inside + name))
        for name, one in zip(names, types, strict=True)
    ]
    if not fields:
        raise GraphError(
            f"{path or 'the stream'} is a record without fields, but a DataFrame needs columns."
        )
    return s.StructType(fields)


def _refuse(type_info: t.TypeInformation, path: str) -> NoReturn:
    advice = "declare what it is"
    if type_info == t.Types.BIG_DEC():
        advice = "declare its digits with Types.DECIMAL(precision, scale)"
    elif type_info == t.Types.INSTANT():
        advice = "make it a datetime in UTC, of type Types.TIMESTAMP_LTZ()"
    elif is_columnar(type_info):
        advice = "make it a string or a number"
    raise GraphError(
        f"{'column ' + path if path else 'the stream'} is of type {type_info}, which has no "
        f"counterpart in Spark: {advice}."
    )


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
