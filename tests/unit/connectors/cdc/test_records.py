"""Debezium's JSON of values that JSON has no numbers for."""

import json
import math

from penstock.common import Types
from penstock.connectors.cdc.records import Change, DebeziumMaker
from penstock.connectors.cdc.tables import Column, TableId, TableShape

TABLE = TableId("public", "t")


def _no_json(name):
    raise AssertionError(f"{name} is no JSON")


def test_floats_that_are_no_numbers_are_texts_as_the_json_converter_writes_them():
    names = ("a", "b", "c", "d")
    columns = tuple(Column(name, "double", "double", Types.DOUBLE()) for name in names)
    maker = DebeziumMaker("postgresql", "shop", {TABLE: TableShape(TABLE, columns, (0,))})
    row = (1.5, math.nan, math.inf, -math.inf)
    (text,) = maker.batch([Change("u", TABLE, row, row, 7)]).values
    found = json.loads(text, parse_constant=_no_json)
    expected = {"a": 1.5, "b": "NaN", "c": "Infinity", "d": "-Infinity"}
    assert (found["before"], found["after"]) == (expected, expected)
