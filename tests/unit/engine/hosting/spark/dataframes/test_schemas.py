"""Spark's types and ours, both ways. Expectations: docs/guides/dataframes.md."""

import pytest
from pyspark.sql import types as s

from penstock.common import Types
from penstock.engine.hosting.spark.dataframes.schemas import schema_of, type_of
from penstock.engine.model.errors import GraphError

PAIRS = [
    (s.BooleanType(), Types.BOOLEAN()),
    (s.ByteType(), Types.BYTE()),
    (s.ShortType(), Types.SHORT()),
    (s.IntegerType(), Types.INT()),
    (s.LongType(), Types.LONG()),
    (s.FloatType(), Types.FLOAT()),
    (s.DoubleType(), Types.DOUBLE()),
    (s.StringType(), Types.STRING()),
    (s.BinaryType(), Types.PRIMITIVE_ARRAY(Types.BYTE())),
    (s.DecimalType(12, 3), Types.DECIMAL(12, 3)),
    (s.DateType(), Types.SQL_DATE()),
    (s.TimestampType(), Types.TIMESTAMP_LTZ()),
    (s.TimestampNTZType(), Types.SQL_TIMESTAMP()),
    (s.ArrayType(s.LongType()), Types.LIST(Types.LONG())),
    (s.MapType(s.StringType(), s.IntegerType()), Types.MAP(Types.STRING(), Types.INT())),
    (
        s.StructType([s.StructField("a", s.ArrayType(s.DateType()))]),
        Types.ROW_NAMED(["a"], [Types.LIST(Types.SQL_DATE())]),
    ),
]


@pytest.mark.parametrize(("spark_type", "type_info"), PAIRS)
def test_every_type_has_its_counterpart_and_comes_back(spark_type, type_info):
    schema = s.StructType([s.StructField("x", spark_type)])
    row = Types.ROW_NAMED(["x"], [type_info])
    assert type_of(schema) == row
    assert schema_of(row) == schema


def test_a_tuple_has_numbered_columns_and_a_single_value_is_called_value():
    assert (
        schema_of(Types.TUPLE([Types.INT(), Types.STRING()])).simpleString()
        == "struct<f0:int,f1:string>"
    )
    assert schema_of(Types.LONG()).simpleString() == "struct<value:bigint>"


DEEP = s.StructType([s.StructField("c", s.YearMonthIntervalType())])


@pytest.mark.parametrize(
    ("name", "kind", "path"),
    [
        ("i", s.DayTimeIntervalType(), "i"),
        ("v", s.VariantType(), "v"),
        ("a", s.StructType([s.StructField("b", s.ArrayType(DEEP))]), r"a\.b\.element\.c"),
        ("m", s.MapType(s.StringType(), s.NullType()), r"m\.value"),
        ("m", s.MapType(s.NullType(), s.StringType()), r"m\.key"),
    ],
)
def test_a_type_of_spark_without_counterpart_is_refused_with_its_path(name, kind, path):
    schema = s.StructType([s.StructField("fine", s.LongType()), s.StructField(name, kind)])
    with pytest.raises(GraphError, match=rf"column {path} is of Spark's type .*Cast it"):
        type_of(schema)


@pytest.mark.parametrize(
    ("type_info", "text"),
    [
        (None, "has none. Declare it"),
        (Types.PICKLED_BYTE_ARRAY(), "has none. Declare it"),
        (
            Types.ROW_NAMED(["a"], [Types.BIG_DEC()]),
            r"column a is of type BigDecimal.*DECIMAL\(precision, scale\)",
        ),
        (
            Types.ROW_NAMED(["a"], [Types.LIST(Types.INSTANT())]),
            r"column a\.element .*TIMESTAMP_LTZ",
        ),
        (
            Types.ROW_NAMED(["a"], [Types.MAP(Types.STRING(), Types.SQL_TIME())]),
            r"column a\.value .*string",
        ),
        (Types.TUPLE([Types.PICKLED_BYTE_ARRAY()]), "column f0 .*declare"),
    ],
)
def test_a_type_of_ours_without_counterpart_is_refused_with_its_path(type_info, text):
    with pytest.raises(GraphError, match=text):
        schema_of(type_info)


def test_two_columns_of_one_name_are_refused():
    field = s.StructField("a", s.LongType())
    with pytest.raises(GraphError, match="several columns named a"):
        type_of(s.StructType([field, field]))
