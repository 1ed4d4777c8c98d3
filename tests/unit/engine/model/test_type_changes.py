"""What becomes of state when its declared type changes. The expectations are those of
docs/spec/state.md#changed-types.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from penstock.engine.model.row import Row, RowKind
from penstock.engine.model.type_changes import KeysMerge, type_change
from penstock.engine.model.types import Types

INTEGERS = [Types.BYTE(), Types.SHORT(), Types.INT(), Types.LONG(), Types.BIG_INT()]


@pytest.mark.parametrize("wide", range(1, 5))
def test_integers_are_widened_and_never_narrowed(wide):
    for narrow in range(wide):
        change = type_change(INTEGERS[narrow], INTEGERS[wide])
        assert (change.refusal, change.convert, len(change.steps)) == ("", None, 1)
        assert type_change(INTEGERS[wide], INTEGERS[narrow]).refusal


def test_integers_become_double_only_if_the_job_allows_it():
    for kind in INTEGERS[:-1]:
        refusal = type_change(kind, Types.DOUBLE()).refusal
        assert "penstock.state-recovery.allow-int-to-double" in refusal
        change = type_change(kind, Types.DOUBLE(), allows_double=True)
        value = change.convert(3)
        assert (value, type(value), change.convert(None)) == (3.0, float, None)
    assert type_change(Types.BIG_INT(), Types.DOUBLE(), allows_double=True).refusal


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (Types.LONG(), Types.STRING()),
        (Types.STRING(), Types.LONG()),
        (Types.DOUBLE(), Types.LONG()),
        (Types.DOUBLE(), Types.FLOAT()),
        (Types.LONG(), Types.TUPLE([Types.LONG()])),
        (Types.LONG(), Types.PICKLED_BYTE_ARRAY()),
        (Types.PICKLED_BYTE_ARRAY(), Types.LONG()),
        (Types.TUPLE([Types.LONG()]), Types.TUPLE([Types.LONG(), Types.LONG()])),
        (Types.LIST(Types.LONG()), Types.BASIC_ARRAY(Types.LONG())),
        (Types.DECIMAL(10, 2), Types.DECIMAL(10, 3)),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Types.ROW_NAMED(["b"], [Types.LONG()])),
        (Types.ROW_NAMED(["a"], [Types.LONG()]), Types.ROW_NAMED(["a"], [Types.STRING()])),
    ],
)
def test_what_has_no_conversion_is_refused_and_both_types_are_named(former, present):
    refusal = type_change(former, present).refusal
    assert " cannot become " in refusal


def test_a_refusal_says_where_in_the_type_it_is():
    former = Types.MAP(Types.STRING(), Types.ROW_NAMED(["n", "x"], [Types.LONG(), Types.STRING()]))
    present = Types.MAP(
        Types.STRING(), Types.ROW_NAMED(["n", "x"], [Types.STRING(), Types.STRING()])
    )
    assert type_change(former, present).refusal == (
        "values of the map.n: LONG cannot become STRING: there is no conversion"
    )


def test_fields_of_a_row_are_found_by_name():
    former = Types.ROW_NAMED(["n", "old", "x"], [Types.INT(), Types.STRING(), Types.FLOAT()])
    present = Types.ROW_NAMED(
        ["x", "n", "new", "more"], [Types.DOUBLE(), Types.LONG(), Types.LONG(), Types.STRING()]
    ).with_defaults(new=7)
    change = type_change(former, present)
    row = Row(n=1, old="gone", x=0.5)
    row.set_row_kind(RowKind.UPDATE_AFTER)
    made = change.convert(row)
    assert made.as_dict() == {"x": 0.5, "n": 1, "new": 7, "more": None}
    assert made.get_row_kind() is RowKind.UPDATE_AFTER
    assert change.convert(None) is None
    assert set(change.steps) == {
        "field 'x': FLOAT becomes DOUBLE",
        "field 'n': INT becomes LONG",
        "field 'new' is added, as 7",
        "field 'more' is added, as None",
        "field 'old' is dropped",
    }


def test_a_row_whose_names_are_lost_or_that_is_a_tuple_goes_by_position():
    former = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    present = Types.ROW_NAMED(["b", "a", "c"], [Types.STRING(), Types.LONG(), Types.LONG()])
    convert = type_change(former, present).convert
    assert convert(Row(1, "x")).as_dict() == {"b": "x", "a": 1, "c": None}
    assert convert((1, "x")) == ("x", 1, None)


def test_a_row_without_names_grows_and_shrinks_at_its_end():
    short, long = Types.ROW([Types.LONG()]), Types.ROW([Types.LONG(), Types.STRING()])
    assert list(type_change(short, long).convert(Row(1))) == [1, None]
    assert list(type_change(long, short).convert(Row(1, "x"))) == [1]
    named = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.STRING()])
    assert type_change(long, named).convert(Row(1, "x")).as_dict() == {"a": 1, "b": "x"}


def test_values_inside_of_collections_are_converted():
    former = Types.LIST(Types.MAP(Types.LONG(), Types.TUPLE([Types.INT(), Types.STRING()])))
    present = Types.LIST(Types.MAP(Types.DOUBLE(), Types.TUPLE([Types.DOUBLE(), Types.STRING()])))
    convert = type_change(former, present, allows_double=True).convert
    assert repr(convert([{1: (2, "x")}, {}])) == "[{1.0: (2.0, 'x')}, {}]"


def test_keys_of_a_map_that_become_one_are_an_error():
    convert = type_change(
        Types.MAP(Types.LONG(), Types.LONG()),
        Types.MAP(Types.DOUBLE(), Types.LONG()),
        allows_double=True,
    ).convert
    with pytest.raises(KeysMerge, match="two keys of the map become one"):
        convert({2**53: 1, 2**53 + 1: 2})


A, AB = Types.ROW_NAMED(["a"], [Types.INT()]), Types.ROW_NAMED(["a", "b"], [Types.INT()] * 2)
A_LONG = Types.ROW_NAMED(["a"], [Types.LONG()])


@pytest.mark.parametrize(
    ("former", "present", "merges", "merges_keys"),
    [
        (Types.INT(), Types.LONG(), False, False),
        (Types.INT(), Types.DOUBLE(), False, False),
        (Types.LONG(), Types.DOUBLE(), True, False),
        (A, AB, False, False),
        (A, A_LONG, False, False),
        (AB, A, True, False),
        (Types.TUPLE([AB]), Types.TUPLE([A]), True, False),
        (Types.LIST(AB), Types.LIST(A), True, False),
        (Types.ROW_NAMED(["r"], [AB]), Types.ROW_NAMED(["r"], [A]), True, False),
        (Types.MAP(AB, Types.INT()), Types.MAP(A, Types.INT()), False, True),
        (Types.MAP(A, AB), Types.MAP(A, A), True, False),
        (Types.LIST(Types.MAP(AB, AB)), Types.LIST(Types.MAP(A, A)), True, True),
        (
            Types.TUPLE([Types.MAP(Types.LONG(), AB)]),
            Types.TUPLE([Types.MAP(Types.DOUBLE(), AB)]),
            False,
            True,
        ),
    ],
)
def test_it_is_known_whether_two_values_or_two_keys_of_a_map_may_become_one(
    former, present, merges, merges_keys
):
    change = type_change(former, present, allows_double=True)
    assert change.convert is not None or not merges
    assert (change.merges, change.merges_keys) == (merges, merges_keys)


def test_a_decimal_may_have_more_digits():
    change = type_change(Types.DECIMAL(10, 2), Types.DECIMAL(12, 4))
    assert str(change.convert(Decimal("1.25"))) == "1.2500"
    assert type_change(Types.DECIMAL(10, 2), Types.DECIMAL(11, 2)).convert is None
