"""Values of declared types between two functions: the same programs ran on PyFlink 2.3, which gave the expected values.

Where PyFlink gives something else in a chain than between tasks, and the present rule is the same in both, the name of the test says the
rule (docs/reference/compatibility.md#where-results-differ).
"""

import datetime as dt
from decimal import Decimal

import pytest

from penstock.common import Row, Types
from penstock.datastream import RuntimeExecutionMode
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import JobExecutionError
from tests.tools.programs.environments import collected, collected_in_order, minicluster_environment

INT, STRING, PICKLED = Types.INT(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()
PAIR = Types.TUPLE([INT, STRING])
NAMED = Types.ROW_NAMED(["a", "b"], [INT, STRING])
WITH_Q = Types.ROW_NAMED(["q"], [INT])
CHAINED = [True, False]
MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(1)


def seen(env, value, type_info, *, is_chained=True):
    """What the function sees that comes behind `map(lambda _: value, type_info)`."""
    if not is_chained:
        env.disable_operator_chaining()
    typed = env.from_collection([0], INT).map(lambda _: value, type_info)
    (text,) = collected(typed.map(repr))
    return text


@pytest.mark.parametrize(
    ("value", "type_info", "text"),
    [
        (Row(c=1, d="s"), NAMED, "Row(c=1, d='s')"),
        (Row(1), NAMED, "<Row(1)>"),
        (Row(1, "b", "c"), NAMED, "<Row(1, 'b', 'c')>"),
        ((1, "b"), NAMED, "(1, 'b')"),
        ({"a": 1, "b": "b"}, NAMED, "{'a': 1, 'b': 'b'}"),
        ([1, "b"], PAIR, "[1, 'b']"),
        (Row(1, "b"), PAIR, "<Row(1, 'b')>"),
        ((1, "b", "c"), PAIR, "(1, 'b', 'c')"),
        (5, Types.BOOLEAN(), "5"),
        (5, STRING, "5"),
        (b"ab", STRING, "b'ab'"),
        (2**31, INT, str(2**31)),
        (2**63, Types.LONG(), str(2**63)),
        ("5", INT, "'5'"),
        (1.5, INT, "1.5"),
    ],
)
def test_in_a_chain_a_value_that_does_not_fit_its_type_reaches_the_next_function(
    env, value, type_info, text
):
    assert seen(env, value, type_info) == text


def test_a_filter_passes_on_what_does_not_fit_and_a_sink_behind_it_refuses_it(env):
    typed = env.from_collection([0], INT).map(lambda _: "5", INT)
    assert collected(typed.filter(lambda text: text == "5").map(repr)) == ["'5'"]
    with pytest.raises(JobExecutionError, match="does not fit the declared type Integer"):
        collected(typed.filter(lambda text: text == "5"))


def test_a_value_that_does_not_fit_is_refused_where_the_chain_ends(env):
    typed = env.from_collection([0], INT).map(lambda _: "5", INT)
    with pytest.raises(JobExecutionError, match="does not fit the declared type Integer"):
        collected(typed)
    typed = env.from_collection([0], INT).map(lambda _: (1, "b", "c"), PAIR)
    with pytest.raises(JobExecutionError, match="has 3 fields"):
        collected(typed.key_by(lambda pair: pair[0]).map(repr))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("value", "type_info", "text"),
    [
        (1.5, INT, "1"),
        (2.0, Types.LONG(), "2"),
        (5, Types.BOOLEAN(), "True"),
        (1e300, Types.FLOAT(), "inf"),
        (5, Types.BIG_DEC(), "Decimal('5')"),
        ([1, "b"], PAIR, "(1, 'b')"),
        (Row(1, "b"), PAIR, "(1, 'b')"),
        ((1, "b"), NAMED, "Row(a=1, b='b')"),
        ({"b": "b", "a": 1}, NAMED, "Row(a=1, b='b')"),
        (dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC), Types.SQL_DATE(), "datetime.date(2020, 1, 2)"),
    ],
)
def test_between_tasks_a_value_is_converted_to_its_type(env, mode, value, type_info, text):
    env.set_runtime_mode(mode)
    assert seen(env, value, type_info, is_chained=False) == text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_chained", CHAINED)
@pytest.mark.parametrize(
    ("value", "type_info", "text"),
    [
        (Row(1, None), Types.ROW([INT, PICKLED]), "Row(f0=1, f1=None)"),
        (Row(Row(1), None), Types.ROW([Types.ROW([INT]), PICKLED]), "Row(f0=Row(f0=1), f1=None)"),
        (
            Row(1, "x", None),
            Types.ROW_NAMED(["a", "b", "c"], [INT, STRING, Types.BIG_DEC()]),
            "Row(a=1, b='x', c=None)",
        ),
        (
            Row(None, [Row(7)]),
            Types.ROW_NAMED(["a", "l"], [Types.BIG_DEC(), Types.LIST(WITH_Q)]),
            "Row(a=None, l=[Row(q=7)])",
        ),
        (
            Row(None, {"k": Row(7)}),
            Types.ROW_NAMED(["d", "m"], [Types.BIG_DEC(), Types.MAP(STRING, WITH_Q)]),
            "Row(d=None, m={'k': Row(q=7)})",
        ),
        (
            Row(amount=Decimal(1), name="x"),
            Types.ROW_NAMED(["name", "amount"], [STRING, Types.BIG_DEC()]),
            "Row(name='x', amount=Decimal('1'))",
        ),
        (
            (0.1, True, None),
            Types.TUPLE([Types.FLOAT(), INT, PICKLED]),
            "(0.10000000149011612, 1, None)",
        ),
        (
            ([0.1, 1], None),
            Types.TUPLE([Types.LIST(Types.FLOAT()), PICKLED]),
            "([0.10000000149011612, 1.0], None)",
        ),
        (0.1, Types.FLOAT(), "0.10000000149011612"),
        (3, Types.DOUBLE(), "3.0"),
        (True, INT, "1"),
        ((1, 2), Types.LIST(INT), "[1, 2]"),
        (Row(), Types.ROW([]), "Row()"),
    ],
)
def test_what_a_function_sees_has_its_declared_type_in_a_chain_and_between_tasks(
    env, mode, is_chained, value, type_info, text
):
    env.set_runtime_mode(mode)
    assert seen(env, value, type_info, is_chained=is_chained) == text


@pytest.mark.parametrize("is_chained", CHAINED)
def test_sums_of_32_bits_become_infinite_instead_of_failing(env, is_chained):
    if not is_chained:
        env.disable_operator_chaining()
    pair = Types.TUPLE([STRING, Types.FLOAT()])
    summed = env.from_collection([("a", 1e38), ("a", 3e38)], pair).key_by(lambda x: x[0]).sum(1)
    assert collected(summed.map(lambda x: x[1] > 3.5e38)) == [False, True]


def test_a_sum_of_booleans_counts_in_a_chain_and_is_a_boolean_between_tasks(env):
    flags = [("a", True), ("b", False), ("a", False), ("a", True)]
    typed = Types.TUPLE([STRING, Types.BOOLEAN()])
    summed = env.from_collection(flags, typed).key_by(lambda x: x[0]).sum(1)
    assert collected_in_order(summed.map(repr)) == [
        "('a', 1)", "('a', 2)", "('a', True)", "('b', False)",
    ]  # fmt: skip
    env.disable_operator_chaining()
    summed = env.from_collection(flags, typed).key_by(lambda x: x[0]).sum(1)
    assert collected_in_order(summed.map(repr)) == [*["('a', True)"] * 3, "('b', False)"]


def test_a_reduce_may_leave_its_type_in_a_chain(env):
    halves = env.from_collection([("a", 1), ("a", 2)], Types.TUPLE([STRING, Types.LONG()]))
    reduced = halves.key_by(lambda x: x[0]).reduce(lambda a, b: (a[0], (a[1] + b[1]) / 2))
    assert collected(reduced.map(repr)) == ["('a', 1)", "('a', 1.5)"]


@pytest.mark.parametrize("field", [-1, 1])
def test_a_position_may_count_from_the_end(env, field):
    pairs = [("a", 1), ("b", 5), ("a", 2)]
    for typed in (Types.TUPLE([STRING, Types.LONG()]), None):
        summed = env.from_collection(pairs, typed).key_by(lambda x: x[0]).sum(field)
        assert collected_in_order(summed) == [("a", 1), ("a", 3), ("b", 5)]


def test_a_collection_is_converted_but_no_number_loses_its_meaning(env):
    assert collected(env.from_collection([5], STRING)) == ["5"]
    moment = dt.datetime(2024, 2, 29, 5, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    assert collected(env.from_collection([moment], Types.SQL_DATE())) == [dt.date(2024, 2, 29)]
    wall_clock = moment.replace(tzinfo=None)
    assert collected(env.from_collection([moment], Types.SQL_TIMESTAMP())) == [wall_clock]
    with pytest.raises(OverflowError, match="more than 64 bits"):
        env.from_collection([2**63], Types.LONG())
