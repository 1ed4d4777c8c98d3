"""Protobuf messages as Rows and back: what Google's own library makes of them, and Flink's types."""

import datetime as dt
import pickle
import sys

import pytest
from google.protobuf import struct_pb2
from google.type.money_pb2 import Money
from pyspark import cloudpickle

from penstock.common import Duration, Instant, Row, Types
from penstock.connectors.api.messaging.records import batch_of
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.protobuf import ProtobufDeserializationSchema, ProtobufSerializationSchema
from tests.tools.protobuf_messages import classes

THREE = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "parts.proto";
enum Kind { UNKNOWN = 0; BOOK = 1; }
message Order {
  message Line { string article = 1; uint32 count = 2; }
  int32 i32 = 1; sint32 s32 = 2; sfixed32 sf32 = 3; uint32 u32 = 4; fixed32 f32 = 5;
  int64 i64 = 6; sint64 s64 = 7; sfixed64 sf64 = 8; uint64 u64 = 9; fixed64 f64 = 10;
  float f = 11; double d = 12; bool b = 13; string text = 14; bytes raw = 15;
  Kind kind = 16;
  repeated int32 numbers = 17; repeated Kind kinds = 18; repeated Line lines = 19;
  map<string, int64> counts = 20; map<int32, Line> by_place = 21; map<bool, Kind> by_flag = 22;
  oneof paid { string card = 23; Line voucher = 24; }
  optional int32 rank = 25;
  Line first = 26;
  google.protobuf.Timestamp at = 27; google.protobuf.Duration took = 28;
  google.protobuf.StringValue note = 29; repeated google.protobuf.UInt64Value big = 30;
  parts.Place place = 31;
  int32 class = 32;
}
message Node { int32 value = 1; Node next = 2; }
"""
PARTS = 'syntax = "proto3"; package parts; message Place { string city = 1; }'
TWO = """
syntax = "proto2";
package old;
enum Size { SMALL = 1; LARGE = 2; }
message Item {
  required int64 id = 1;
  optional string name = 2 [default = "none"];
  optional Size size = 3 [default = LARGE];
  repeated int32 numbers = 4 [packed = true];
  optional group Extra = 5 { optional int32 depth = 6; }
}
"""
FILES = {"shop.proto": THREE, "parts.proto": PARTS, "old.proto": TWO}
Order, Node, Item, Line = classes(FILES, "shop.Order", "shop.Node", "old.Item", "shop.Order.Line")
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
LINE = Types.ROW_NAMED(["article", "count"], [Types.STRING(), Types.LONG()])
FULL = {
    "i32": -(2**31), "s32": -1, "sf32": 2**31 - 1, "u32": 2**32 - 1, "f32": 2**32 - 1,
    "i64": -(2**63), "s64": -1, "sf64": 2**63 - 1, "u64": 2**64 - 1, "f64": 2**64 - 1,
    "f": 0.5, "d": 0.1, "b": True, "text": "ä", "raw": b"\x00\xff", "kind": "BOOK",
    "numbers": [1, -2], "kinds": ["BOOK", "UNKNOWN"],
    "lines": [Row(article="a", count=1), Row(article="b", count=0)],
    "counts": {"x": 2**40}, "by_place": {3: Row(article="c", count=3)}, "by_flag": {True: "BOOK"},
    "card": None, "voucher": Row(article="v", count=0), "rank": 0,
    "first": Row(article="", count=0), "at": Instant(-1, 999_999_999),
    "took": Row(seconds=-3, nanos=-5), "note": "", "big": [2**64 - 1], "place": Row(city="Ro"),
    "class": 7,
}  # fmt: skip
DEFAULTS = {bool: False, int: 0, float: 0.0, str: "", bytes: b"", list: [], dict: {}}
EMPTY = {
    **{name: DEFAULTS.get(type(value)) for name, value in FULL.items()},
    "kind": "UNKNOWN",
    **dict.fromkeys(("rank", "note", "at")),
}


def google_message():
    """The message of FULL, as its fields are set with Google's library."""
    made = Order(
        i32=-(2**31), s32=-1, sf32=2**31 - 1, u32=2**32 - 1, f32=2**32 - 1,
        i64=-(2**63), s64=-1, sf64=2**63 - 1, u64=2**64 - 1, f64=2**64 - 1,
        f=0.5, d=0.1, b=True, text="ä", raw=b"\x00\xff", kind=1, numbers=[1, -2], kinds=[1, 0],
        lines=[{"article": "a", "count": 1}, {"article": "b"}], counts={"x": 2**40},
        by_flag={True: 1}, voucher={"article": "v"}, rank=0, first={},
        at={"seconds": -1, "nanos": 999_999_999}, took={"seconds": -3, "nanos": -5},
        note={"value": ""}, big=[{"value": 2**64 - 1}], place={"city": "Ro"}, **{"class": 7},
    )  # fmt: skip
    made.by_place[3].article = "c"
    made.by_place[3].count = 3
    return made


def read(cls, data):
    return ProtobufDeserializationSchema(cls).deserialize(data)


def written(cls, value):
    return cls.FromString(ProtobufSerializationSchema(cls).serialize(value))


def test_the_type_is_that_of_the_definition():
    names = list(FULL)
    types = dict(zip(names, [
        Types.INT(), Types.INT(), Types.INT(), Types.LONG(), Types.LONG(),
        Types.LONG(), Types.LONG(), Types.LONG(), Types.BIG_INT(), Types.BIG_INT(),
        Types.FLOAT(), Types.DOUBLE(), Types.BOOLEAN(), Types.STRING(), BYTES, Types.STRING(),
        Types.OBJECT_ARRAY(Types.INT()), Types.OBJECT_ARRAY(Types.STRING()),
        Types.OBJECT_ARRAY(LINE), Types.MAP(Types.STRING(), Types.LONG()),
        Types.MAP(Types.INT(), LINE), Types.MAP(Types.BOOLEAN(), Types.STRING()),
        Types.STRING(), LINE, Types.INT(), LINE, Types.INSTANT(),
        Types.ROW_NAMED(["seconds", "nanos"], [Types.LONG(), Types.INT()]), Types.STRING(),
        Types.OBJECT_ARRAY(Types.BIG_INT()), Types.ROW_NAMED(["city"], [Types.STRING()]),
        Types.INT(),
    ], strict=True))  # fmt: skip
    expected = Types.ROW_NAMED(names, list(types.values()))
    assert ProtobufDeserializationSchema(Order).produced_type == expected


def test_a_full_message_becomes_its_row():
    assert read(Order, google_message().SerializeToString()) == Row(**FULL)


def test_an_empty_message_has_the_defaults_and_none_where_presence_counts():
    assert read(Order, b"") == Row(**EMPTY)
    assert read(Order, None) is None


@pytest.mark.parametrize("form", [lambda: Row(**FULL), lambda: FULL, lambda: tuple(FULL.values())])
def test_a_row_becomes_googles_message(form):
    assert written(Order, form()) == google_message()


def test_what_is_not_set_stays_so():
    made = written(Order, {"rank": None, "card": "visa", "i32": None})
    assert made == Order(card="visa")
    assert made.WhichOneof("paid") == "card"
    assert not made.HasField("rank")
    assert written(Order, Row(**EMPTY)) == Order()


def test_a_message_of_the_class_stays_as_it_is():
    message = google_message()
    assert written(Order, message) == message
    with pytest.raises(ValueError, match="expected a Row, a tuple or a dict"):
        written(Order, Line())


def test_times_may_be_pythons_and_penstocks():
    at = dt.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    made = written(Order, {"at": at, "took": dt.timedelta(seconds=-1.5)})
    assert made.at.ToDatetime(tzinfo=dt.UTC) == at
    assert made.took.ToTimedelta() == dt.timedelta(seconds=-1.5)
    made = written(
        Order, {"at": at.astimezone(dt.UTC).replace(tzinfo=None), "took": Duration(1_500_000_001)}
    )
    assert made.at.ToDatetime(tzinfo=dt.UTC) == at
    assert (made.took.seconds, made.took.nanos) == (1, 500_000_001)


def test_an_enum_of_proto3_is_open():
    data = Order(kind=9, kinds=[1, 9]).SerializeToString()
    row = read(Order, data)
    assert (row["kind"], row["kinds"]) == ("9", ["BOOK", "9"])
    assert written(Order, row).SerializeToString() == data
    assert written(Order, {"kind": 1}).kind == 1


def test_proto2_has_presence_groups_and_required_fields():
    group = Types.ROW_NAMED(["depth"], [Types.INT()])
    assert ProtobufDeserializationSchema(Item).produced_type == Types.ROW_NAMED(
        ["id", "name", "size", "numbers", "extra"],
        [Types.LONG(), Types.STRING(), Types.STRING(), Types.OBJECT_ARRAY(Types.INT()), group],
    )
    bare, full = Item(id=1), Item(id=1, name="", size=1, numbers=[1], extra={"depth": 2})
    rows = [
        Row(id=1, name=None, size=None, numbers=[], extra=None),
        Row(id=1, name="", size="SMALL", numbers=[1], extra=Row(depth=2)),
    ]
    assert [read(Item, one.SerializeToString()) for one in (bare, full)] == rows
    assert [written(Item, row) for row in rows] == [bare, full]
    with pytest.raises(ValueError, match=r"old.Item: .*id"):
        written(Item, {"name": "x"})
    with pytest.raises(ValueError, match=r"old.Item: it lacks \['id'\]"):
        read(Item, b"")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"i32": 2**31}, "i32: Value out of range"),
        ({"u32": -1}, "u32: Value out of range"),
        ({"text": 5}, "text: "),
        ({"raw": 5}, "raw: "),
        ({"raw": "text"}, "raw: "),
        ({"kind": "PEN"}, r"kind: the enum shop.Kind has no 'PEN', only \['UNKNOWN', 'BOOK'\]"),
        ({"card": "visa", "voucher": ("v", 1)}, "card and voucher have values.*oneof 'paid'"),
        ({"lines": [("a", 1, 2)]}, r"lines: expected 2 fields \['article', 'count'\]"),
        ({"by_place": {1: {"count": "x"}}}, "by_place: count: "),
        ({"numbers": [None]}, "numbers: "),
        ({"numbers": b"ab"}, "numbers: expected a list, got b'ab'"),
        ({"kinds": "BOOK"}, "kinds: expected a list, got 'BOOK'"),
        ({"lines": {"article": "a"}}, "lines: expected a list"),
        ({"counts": 5}, "counts: "),
        ({"at": "now"}, "at: expected an Instant or a datetime, got 'now'"),
        ({"cart": 1}, "shop.Order has no field 'cart'"),
        ((1, 2), "expected 32 fields"),
        ("text", "expected a Row, a tuple or a dict"),
    ],
)
def test_a_record_that_does_not_fit_names_the_field(value, text):
    with pytest.raises(ValueError, match=f"Protobuf's shop.Order: {text}"):
        written(Order, value)


def test_bad_messages_go_to_the_error_policy():
    good = Line(article="a").SerializeToString()
    bad = [b"\xff" * 12, good[:-1], b"\x0a\x01\xff"]  # the last: no UTF-8
    batch = batch_of([*bad, good], None, ProtobufDeserializationSchema(Line), str)
    *marks, row = batch.values
    assert [type(one) for one in marks] == [Malformed] * 3
    assert "cannot be read as Protobuf's shop.Order.Line" in str(marks[0].error)
    assert row == Row(article="a", count=0)


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_it_is_pickled_without_the_module_of_the_class(pickler):
    reads, writes = ProtobufDeserializationSchema(Order), ProtobufSerializationSchema(Order)
    reads.deserialize(b"")
    writes.serialize({})
    reads, writes = pickle.loads(pickler.dumps((reads, writes)))
    assert reads.deserialize(google_message().SerializeToString()) == Row(**FULL)
    assert Order.FromString(writes.serialize(Row(**FULL))) == google_message()
    assert writes.serialize(google_message()) == google_message().SerializeToString()


def test_classes_of_generated_modules_are_taken():
    price = Money(currency_code="SEK", units=5)
    row = read(Money, price.SerializeToString())
    assert row == Row(currency_code="SEK", units=5, nanos=0)
    copy = pickle.loads(pickle.dumps(ProtobufSerializationSchema(Money)))
    assert copy.serialize(row) == price.SerializeToString()


def test_without_protobuf_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.protobuf.message", None)
    text = r"needs the package 'google.protobuf'.*pip install 'penstock\[protobuf\]'"
    with pytest.raises(ConfigurationError, match=text):
        ProtobufDeserializationSchema(Money)


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (Node, r"'shop.Node' contains itself \(shop.Node > shop.Node\)"),
        (struct_pb2.Struct, "google.protobuf.Struct.* contains itself"),
        (Order(), "expected a message class that protoc has made"),
        (dict, "expected a message class that protoc has made.*dict"),
    ],
)
@pytest.mark.parametrize("schema", [ProtobufDeserializationSchema, ProtobufSerializationSchema])
def test_what_a_row_cannot_hold_is_refused(schema, cls, text):
    with pytest.raises(ConfigurationError, match=text):
        schema(cls)
