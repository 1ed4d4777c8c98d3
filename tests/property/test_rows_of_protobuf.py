"""A law: whatever message Google's library makes, its Row makes the same message again."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.formats.protobuf import ProtobufDeserializationSchema, ProtobufSerializationSchema
from tests.tools.protobuf_messages import classes

TEXT = """
edition = "2023";
package laws;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Kind { NONE = 0; ONE = 1; }
message Part { int64 number = 1; string text = 2 [features.field_presence = IMPLICIT]; }
message Whole {
  int32 i = 1; uint64 u = 2 [features.field_presence = IMPLICIT]; double d = 3; bytes raw = 4;
  Kind kind = 5; repeated sint64 many = 6; repeated Part parts = 7; map<string, Part> by_name = 8;
  oneof either { Part left = 9; bool right = 10; }
  google.protobuf.Timestamp at = 11; repeated google.protobuf.StringValue notes = 12;
  map<uint32, Kind> kinds = 13;
}
"""
Whole, Part = classes({"laws.proto": TEXT}, "laws.Whole", "laws.Part")
LONGS = st.integers(-(2**63), 2**63 - 1)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)


def some(**fields):
    """Dicts of some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


PARTS = some(number=LONGS, text=WORDS)
KINDS = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1])
WHOLES = some(
    i=st.integers(-(2**31), 2**31 - 1),
    u=st.integers(0, 2**64 - 1),
    d=st.floats(allow_nan=False),
    raw=st.binary(max_size=3),
    kind=KINDS,
    many=st.lists(LONGS, max_size=3),
    parts=st.lists(PARTS, max_size=2),
    at=some(seconds=st.integers(-62135596800, 253402300799), nanos=st.integers(0, 999_999_999)),
    notes=st.lists(some(value=WORDS), max_size=2),
    kinds=st.dictionaries(st.integers(0, 2**32 - 1), KINDS, max_size=2),
)
EITHER = some(left=PARTS) | some(right=st.booleans())
READS, WRITES = ProtobufDeserializationSchema(Whole), ProtobufSerializationSchema(Whole)


@given(WHOLES, EITHER, st.dictionaries(WORDS, PARTS, max_size=2))
def test_a_message_its_row_and_the_message_again(fields, either, parts):
    message = Whole(**fields, **either)
    for name, part in parts.items():
        message.by_name[name].CopyFrom(Part(**part))
    row = READS.deserialize(message.SerializeToString())
    assert Whole.FromString(WRITES.serialize(row)) == message
    assert READS.deserialize(WRITES.serialize(row)) == row
