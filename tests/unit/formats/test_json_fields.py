"""Only the fields that are read are parsed: with msgspec, with pyarrow and line by line they have the same values, and the same lines are errors."""

import json
import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.connectors.file_system import StreamFormat
from penstock.engine.runtime.codecs.convert import to_rows
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.partial_columns import DecodedColumns, ParsedColumns
from penstock.engine.runtime.records.dead_letters import Malformed
from penstock.formats.file_format import FilePiece
from penstock.formats.json import JsonRowDeserializationSchema
from tests.tools.runtime.same_values import are_same

NAMES = ["s", "b", "y", "h", "i", "l", "d"]
KINDS = [
    Types.STRING(), Types.BOOLEAN(), Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(),
    Types.DOUBLE(),
]  # fmt: skip
WIDE = Types.ROW_NAMED(NAMES, KINDS)
PAIR = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
DEEP = 20_000

NUMBERS = [
    "0", "-0", "-0.0", "0.0", "1", "-1", "1.0", "-1.0", "1.5", "1e2", "1E+2", "100e-2", "1e400",
    "-1e400", "1e-400", "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308",
    "1.7976931348623159e308", "0.1", "0.30000000000000004", "127", "128", "-128", "-129", "32767",
    "32768", "-32769", "2147483647", "2147483648", "-2147483649", "9007199254740993",
    "9007199254740993.0", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "18446744073709551615", "18446744073709551616",
    "9223372036854775807.0", "9.223372036854775807e18", "12345678901234567890123",
    "123456789012345678901234567890.1234567890e-10", "1" * 400, "0." + "1" * 400, "1" * 5000,
    "-" + "9" * 5000, "1e99999999999999999999", "1e999999999", "NaN", "Infinity", "-Infinity",
    "01", "-01", "1.", ".5", "+1", "1e", "1e+", "-", "0x1", "1_0", "00", "0e5", "1.0e0",
]  # fmt: skip
TEXTS = [
    '""', '"a"', '"größe"', '"花"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00\\ud800"',
    '"\\u0000"', '"\\n\\t\\/\\b"', '"\\x"', '"\\u12"', '"\\u12G4"', '"a\tb"', '"\x01"', '"\x7f"',
    '"1"', '"1.5"', '"true"', '" 7 "', '"NaN"', '"-0"', '"\\"', '"', "'a'",
]  # fmt: skip
OTHERS = [
    "null", "true", "false", "nul", "True", "None", "[]", "[1]", "[1,]", "{}", '{"a": 1}',
    '{"a": 1,}', "", "1 2", '"a" "b"', "[" * 5, "[[[[[]]]]]", "1]", "1}",
]  # fmt: skip
VALUES = [*NUMBERS, *TEXTS, *OTHERS]
WHOLE = [
    "", " ", "null", "5", '"a"', "[]", "[1]", '["a", true, 1, 2, 3, 4, 5.5]', "{}", " {} ",
    "\t{}\r", "{}x", "{} {}", "{}\x00", "\x0b{}", "{}\x0c", "\ufeff{}", "{,}", '{"s": "a",}',
    '{"s": "a" "d": 1}', '{"s"}', '{"s":}', '{s: "a"}', "{'s': 'a'}", '{"s": "a"', '"s": "a"}',
    '{"i": 1, "i": 2}', '{"i": "x", "i": 2}', '{"i": 2, "i": "x"}', '{"i": 2, "i": null}',
    '{"\\u0069": 3}', '{"i\\ud800": 3}', '{"i": 1, "\x01": 2}', "/* c */{}", '{"i": 1} // c',
    "[" * DEEP + "]" * DEEP, '{"z": ' + "[" * 500 + "]" * 500 + "}", '{"z": ' + "[" * DEEP,
]  # fmt: skip


NO_TEXTS = [
    b'{"s": "\xff"}', b'{"z": "\xff"}', b'{"\xff": 1}', b"{\x00}\x00", b'{"s": "\xed\xa0\x80"}',
]  # fmt: skip


def schema(row_type=WIDE, **flags):
    return JsonRowDeserializationSchema(row_type, **flags)


def one_by_one(made, messages):
    """The value of each message, or the class and the text of its error."""
    found = []
    for message in messages:
        try:
            found.append(made.deserialize(message))
        except Exception as error:
            found.append((type(error), str(error)))
    return found


def check(messages, read=tuple(NAMES), **flags):
    """The batch of the fields that are read, if there is one, has the values that the messages have one by one. Returns it."""
    made = schema(**flags).reading(read)
    batch = made.deserialize_columns(messages)
    expected = one_by_one(made, messages)
    if batch is None:
        return None
    if not isinstance(batch, ColumnBatch):
        batch = ColumnBatch(batch)
    assert not any(isinstance(one, tuple) or one is None for one in expected), (messages, expected)
    for name in read:
        place = NAMES.index(name)
        values = batch.values_of(place) if isinstance(batch, DecodedColumns) else None
        if values is None:
            values = batch.column(place).to_pylist()
        wanted = [row[place] for row in expected]
        assert are_same(values, wanted), (messages, name, values, wanted)
    return batch


# ---------------------------------------------------------------------- what is read


@pytest.mark.parametrize("name", [*NAMES, "z"])
@pytest.mark.parametrize("read", [tuple(NAMES), ("d",), ("i", "s")], ids="+".join)
def test_each_value_in_each_field_is_what_it_is_one_by_one(parser, name, read):
    for value in VALUES:
        message = f'{{"{name}": {value}}}'.encode()
        check([message], read)
        check([b'{"s": "a"}', message, b'{"d": 2.5}'], read)
        check([message], read, ignores_errors=True)


@pytest.mark.parametrize("read", [tuple(NAMES), ("d",)], ids="+".join)
def test_each_message_is_what_it_is_one_by_one(parser, read):
    for message in [*(one.encode() for one in WHOLE), *NO_TEXTS]:
        check([message], read)
        check([b'{"s": "a"}', message, b'{"d": 2.5}'], read)
        check([message], read, ignores_errors=True)
    for bad in (None, b""):
        assert not isinstance(schema().reading(read).deserialize_columns([b"{}", bad]), ColumnBatch)


fields = st.sampled_from([*NAMES, "z", "S", ""])
values = st.one_of(
    st.sampled_from(VALUES),
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(json.dumps),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.text().map(json.dumps),
    st.text().map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(json.dumps),
)
spaces = st.sampled_from(["", "", "", " ", "\t", "\r", "\n", "\x0b", "\u2028"])
members = st.tuples(fields.map(json.dumps), spaces, values, spaces).map(
    lambda one: f"{one[0]}:{one[1]}{one[2]}{one[3]}"
)
messages_of_texts = st.tuples(spaces, st.lists(members, max_size=4), spaces).map(
    lambda one: f"{one[0]}{{{','.join(one[1])}}}{one[2]}".encode("utf-8", "surrogatepass")
)
reads = st.sets(st.sampled_from(NAMES), min_size=1).map(sorted).map(tuple)


@given(st.lists(messages_of_texts, min_size=1, max_size=4), reads, st.booleans())
@example([b'{"i":\n1}{"i":2}'], ("i",), False)
def test_random_objects_are_what_they_are_one_by_one(messages, read, ignores_errors):
    check(messages, read, ignores_errors=ignores_errors)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_objects_are_what_they_are_one_by_one(parser, seed):
    """Bytes of good objects are dropped, doubled, swapped and replaced."""
    made = random.Random(seed)
    good = json.dumps({
        "s": 'größe \\ " \u2028 \U0001f600', "b": True, "y": -5, "h": 300, "i": 70000,
        "l": 2**60, "d": -1.5e-7, "z": [{"a": [None, "b"]}, 1e5],
    }).encode()  # fmt: skip
    signs = b"{}[]\":,\\ \n\t-+.eE0123456789ntfu\x00\x1f\x7f\x80\xc3\xed\xff/'"
    for _ in range(400):
        data = bytearray(good)
        for _ in range(made.randint(1, 3)):
            place = made.randrange(len(data))
            match made.randrange(4):
                case 0:
                    del data[place]
                case 1:
                    data.insert(place, made.choice(signs))
                case 2:
                    data[place] = made.choice(signs)
                case _:
                    data[place:place] = data[place : place + made.randint(1, 6)]
        check([bytes(data)], made.choice([tuple(NAMES), ("s",), ("d", "l")]))


def test_random_numbers_are_as_python_reads_them():
    made = random.Random(5)
    for _ in range(3000):
        digits = "".join(made.choice("0123456789") for _ in range(made.randint(1, 40))).lstrip("0")
        cut = made.randrange(len(digits) + 1)
        text = f"{digits[:cut] or '0'}.{digits[cut:] or '0'}e{made.randint(-330, 310)}"
        batch = check([f'{{"d": -{text}}}'.encode()], ("d",))
        assert batch is None or batch.values_of(NAMES.index("d")) == [float(f"-{text}")]


def test_with_msgspec_ordinary_objects_are_decoded(parser):
    batch = check([b'{"i": 1, "z": {"y": null}}', b"{}", b'{"i": 5}'], ("i",))
    assert type(batch) is (DecodedColumns if parser == "msgspec" else ParsedColumns)
    assert batch.schema.names == NAMES


def test_an_odd_object_among_others_is_read_by_the_usual_parser():
    batch = check([b'{"d": 1}', b'{"d": "NaN"}', b'{"d": "2"}'], ("d",))
    assert isinstance(batch, DecodedColumns)
    first, second, third = batch.values_of(NAMES.index("d"))
    assert (first, math.isnan(second), third) == (1.0, True, 2.0)


def test_names_that_no_attribute_can_have_are_read():
    names = ["class", "_a", "a b", "größe", "x"]
    kind = Types.ROW_NAMED(names, [Types.LONG()] * len(names))
    message = json.dumps({name: at for at, name in enumerate(names)}).encode()
    batch = schema(kind).reading(names).deserialize_columns([message])
    assert [batch.values_of(at) for at in range(len(names))] == [[at] for at in range(len(names))]
    assert [tuple(row) for row in batch.rows()] == [tuple(range(len(names)))]


# ---------------------------------------------------------------------- what is not read


BAD_FIELD = b'{"a": 1, "b": {"not": "text"}, "c": true}'
TRIPLE = Types.ROW_NAMED(["a", "b", "c"], [Types.LONG(), Types.LONG(), Types.LONG()])


def test_a_field_that_nobody_reads_is_not_checked_against_its_type(parser):
    messages = [b'{"a": 7, "b": 2, "c": 3}', BAD_FIELD]
    with pytest.raises(ValueError, match="field 'b'"):
        schema(TRIPLE).deserialize(BAD_FIELD)
    made = schema(TRIPLE).reading(["a"])
    batch = made.deserialize_columns(messages)
    assert [tuple(row) for row in batch.rows()] == [(7, 2, 3), (1, None, None)]
    assert to_rows(batch.slice(1, 2), TRIPLE).values == [made.deserialize(BAD_FIELD)]
    assert batch.data.to_pylist() == [{"a": 7, "b": 2, "c": 3}, {"a": 1, "b": None, "c": None}]


def test_a_number_that_is_too_long_for_python_is_no_matter_where_nobody_reads_it(parser):
    message = b'{"a": 1, "b": ' + b"9" * 5000 + b', "c": 1e99999999999999999999}'
    made = schema(TRIPLE).reading(["a"])
    assert tuple(made.deserialize(message)) == (1, None, None)
    batch = made.deserialize_columns([message])
    # pyarrow does not take the second number at all, so the message is read one by one then.
    assert batch is None or [tuple(row) for row in batch.rows()] == [(1, None, None)]
    with pytest.raises(ValueError, match="field 'b'"):
        schema(TRIPLE).reading(["a", "b"]).deserialize(message)


@pytest.mark.parametrize("value", ["tru", "[1,]", '"\\x"', "01", '"a', '{"a"}', '"\t"'])
def test_what_is_no_json_is_an_error_also_where_nobody_reads_it(parser, value):
    message = f'{{"a": 1, "b": {value}}}'.encode()
    made = schema(TRIPLE).reading(["a"])
    assert made.deserialize_columns([message]) is None
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        made.deserialize(message)


def test_a_missing_field_that_is_an_error_needs_all_fields():
    made = schema(TRIPLE, fails_on_missing_field=True)
    assert made.reading(["a"]) is made


def test_a_type_without_columns_needs_all_fields():
    made = schema(Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.BIG_DEC()]))
    assert made.reading(["a"]) is made


def test_a_whole_number_as_long_as_its_exponent_says_is_refused_at_once():
    with pytest.raises(ValueError, match="expected Long"):
        schema(TRIPLE).deserialize(b'{"a": 1e999999999}')


# ---------------------------------------------------------------------- lines of files


def read(path, names, kind=PAIR, **options):
    form = StreamFormat.json_lines_format(kind, **options).reading(names)
    return list(form.read(FilePiece(str(path), 0, None, path.stat().st_size)))


def test_lines_are_decoded(tmp_path, parser):
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1, "b": "x"}\r\n{"a": 2, "b": [1]}\n')
    (batch,) = read(path, ["a"])
    assert type(batch) is (DecodedColumns if parser == "msgspec" else ParsedColumns)
    assert batch.column(0).to_pylist() == [1, 2]
    assert [tuple(row) for row in batch.rows()] == [(1, "x"), (2, "[1]")]


@pytest.mark.parametrize(
    "lines", ['{"a":\n1}{"a":2}\n', '{"a": 1}{"a": 2}\n\n', '{"a": 1}\n{"a":\n2} {"a": 3}']
)
def test_objects_that_have_no_line_of_their_own_are_malformed(tmp_path, parser, lines):
    """As many objects as lines do not make each line an object."""
    path = tmp_path / "lines"
    path.write_text(lines)
    found = [value for batch in read(path, ["a"]) for value in batch.values]
    assert any(isinstance(value, Malformed) for value in found)
    whole = StreamFormat.json_lines_format(PAIR).read(FilePiece(str(path), 0, None, len(lines)))
    assert any(isinstance(value, Malformed) for batch in whole for value in batch.values)


def test_blank_lines_are_no_records(tmp_path, parser):
    path = tmp_path / "lines"
    path.write_text('{"a": 1}\n\n  \n{"a": "2"}\n')
    assert [row.a for batch in read(path, ["a"]) for row in batch.values] == [1, 2]


def test_the_malformed_lines_are_the_same(tmp_path, parser):
    path = tmp_path / "lines"
    path.write_text('{"a": 1, "b": {"x": 1}}\n{"a": "x"}\n{"a": 3\n{"a": 4, "b": "y"}\n')
    (batch,) = read(path, ["a"])
    kinds = [type(value).__name__ for value in batch.values]
    assert kinds == ["Row", "Malformed", "Malformed", "Row"]
    assert batch.values[1].raw == '{"a": "x"}'
    assert "field 'a'" in str(batch.values[1].failure)


def test_timestamps_are_read_although_no_function_reads_them(tmp_path, parser):
    kind = Types.ROW_NAMED(["a", "at"], [Types.LONG(), Types.LONG()])
    path = tmp_path / "lines"
    path.write_text('{"a": 1, "at": 7}\n{"a": 2, "at": 9}\n')
    (batch,) = read(path, ["a"], kind, timestamps="at")
    assert batch.timestamps.tolist() == [7, 9]
    path.write_text('{"a": 1, "at": 7}\n{"a": 2}\n')
    (batch,) = read(path, ["a"], kind, timestamps="at")
    assert [type(value).__name__ for value in batch.values] == ["Row", "Malformed"]


@pytest.mark.parametrize("first", ['{"a": 0}', '{"a": 0, "b": "' + "x" * 100_000 + '"}'])
@pytest.mark.parametrize("parser", ["msgspec"], indirect=True)
def test_objects_come_in_batches_that_stay_in_the_cache(tmp_path, parser, first):
    """However long the first line is."""
    path = tmp_path / "lines"
    path.write_text("\n".join([first, *(f'{{"a": {n}}}' for n in range(1, 50_000))]))
    batches = read(path, ["a"])
    found = [value for batch in batches for value in batch.column(0).to_pylist()]
    assert found == list(range(50_000))
    assert 2_500 < max(map(len, batches)) < 25_000


def test_bytes_that_are_not_of_the_charset_are_malformed_wherever_they_are(tmp_path, parser):
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1, "z": "\xff"}\n{"a": 2}\n')
    (batch,) = read(path, ["a"])
    assert [type(value).__name__ for value in batch.values] == ["Malformed", "Row"]


# ---------------------------------------------------------------------- when it is not worth it


def decoded(made, count, message):
    return isinstance(made.deserialize_columns([message] * count), DecodedColumns)


def test_msgspec_is_not_used_any_more_where_it_refuses_too_much():
    made = schema().reading(["i"])
    assert decoded(made, 500, b'{"i": 1}')
    for _ in range(10):
        assert not decoded(made, 500, b'{"i": "1"}')
    batch = made.deserialize_columns([b'{"i": 1}'] * 500)
    assert isinstance(batch, ParsedColumns)
    assert batch.column(NAMES.index("i")).to_pylist() == [1] * 500


def test_msgspec_is_not_used_any_more_where_whole_records_are_wanted_after_all():
    made = schema().reading(["i"])
    for _ in range(10):
        batch = made.deserialize_columns([b'{"i": 1, "s": "a"}'] * 500)
        assert [row.s for row in batch.rows()] == ["a"] * 500
    assert not decoded(made, 500, b'{"i": 1}')


def test_msgspec_goes_on_where_few_are_odd():
    made = schema().reading(["i"])
    for _ in range(20):
        batch = made.deserialize_columns([b'{"i": 1}'] * 490 + [b'{"i": "1"}'] * 10)
        assert batch.values_of(NAMES.index("i")) == [1] * 500
    assert decoded(made, 500, b'{"i": 1}')
