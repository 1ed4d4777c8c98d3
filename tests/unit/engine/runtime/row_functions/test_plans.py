"""Which functions run on columns, which get their fields, and which are called with records, and why."""

import inspect
import math
import random
import re

import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.engine.model.row import Row
from penstock.engine.runtime.codecs.convert import arrow_schema, to_rows
from penstock.engine.runtime.elements import ColumnBatch
from penstock.engine.runtime.row_functions import plans
from penstock.engine.runtime.row_functions.known_code import Refused
from penstock.engine.runtime.row_functions.plans import Strategy, filter_plan_of, plan_of

BID = Types.ROW_NAMED(
    ["id", "price", "name", "tags", "count", "days"],
    [
        *(Types.LONG(), Types.DOUBLE(), Types.STRING(), Types.LIST(Types.STRING()), Types.INT()),
        Types.LIST(Types.SQL_DATE()),
    ],
)
RATES = {"x": 2.0}
SEEN, WORDS = {1, 2}, frozenset({"x"})
OBJECTS = {"x": object()}
SECRET = object()
changing = 1
ITSELF = "it uses the record itself, not only its fields"


def unknown(name, what="calls or reads"):
    return f"it {what} {name!r}, of which it is not known what it does"


def plan(function, kind=BID):
    return plan_of(function, arrow_schema(kind), kind)


def fields_of(function, kind):
    """Raises: Refused: why the function does not get its fields."""
    fields = plans.fields_of_columns(arrow_schema(kind), kind)
    return plans.plan_as_fields(function, 0, fields, "")


def helper(value):
    return value


def choice(number):
    return number if number and not not number else number != 0  # ruff: ignore[double-negation]


def of_parts(number):
    return ((not not number) if number > 5 else number), number + 1  # ruff: ignore[double-negation]


def with_loop(bid):
    total = 0
    for _ in range(bid.id):
        total += bid.price
    return total


def with_try(bid):
    try:
        return 1 / bid.id
    except ZeroDivisionError:
        return bid.name


def with_branches(bid):
    if bid.id > 1:
        return bid.name
    if bid.price:
        return bid.id
    return None


class Mapper:
    def __init__(self):
        self.rate = 2

    def plain(self, bid):
        return bid.id + 1

    def of_self(self, bid):
        return bid.id * self.rate


@pytest.mark.parametrize(
    "function",
    [
        lambda bid: (bid.id, bid["price"], bid[2]),
        lambda bid: bid.price * 0.9,
        lambda bid: RATES[bid.name] + RATES.get("y", 1),
        lambda bid: f"{bid.name.strip()[:3]:>5}" if bid.name is not None else "",
        lambda bid, factor=3: bid.id * factor,
        lambda bid: Row(a=bid.id, b=math.floor(bid.price)),
        lambda bid: [bid.id, bid.id],
        lambda bid: bid.tags,
        lambda bid: (",".join(bid.tags), len(bid.tags), "new" in bid.tags),
        with_branches,
        Mapper().plain,
    ],
)
def test_pure_functions_run_on_columns(function):
    assert plan(function).strategy is Strategy.COLUMNS


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda bid: helper(bid.id), unknown("helper")),
        (lambda bid: print(bid.id), unknown("print")),
        (lambda bid: (bid.id, SECRET), unknown("SECRET", "reads")),
        (lambda bid: (bid.id, random.random()), unknown("random", "reads")),
        (lambda bid: OBJECTS[bid.name], unknown("OBJECTS", "reads")),
        (with_loop, unknown("range")),
        (with_try, "it has a try or with statement, or a comprehension"),
        (Mapper().of_self, "it reads 'self', the object that it belongs to"),
        (lambda bid: {"id": bid.id}, "it makes a dict"),
        (lambda bid: (lambda one: one)(bid.id), "it makes a function or has a comprehension"),
        (lambda bid: tuple(one for one in bid.id), "it makes a function or has a comprehension"),
        (lambda bid: helper(bid[0]) + bid.price, unknown("helper")),
        (lambda bid: helper(bid[-2] or bid[1]), unknown("helper")),
    ],
)  # fmt: skip
def test_functions_that_only_read_fields_get_them(function, why):
    found = plan(function)
    assert (found.strategy, found.why_not) == (Strategy.FIELDS, why)


PLACED = Types.ROW_NAMED(
    ["a", "b", "class", "d"], [Types.LONG(), Types.STRING(), Types.LONG(), Types.DOUBLE()]
)


def unpacked(row):
    a, b, c, d = row
    return helper((d, c, b, a))


def named_and_unpacked(row):
    a, b, c, d = row
    return helper((d, c, b, a, row.b, row[-1]))


@pytest.mark.parametrize(
    "function",
    [
        lambda row: helper(row[0]),
        lambda row: helper((row[3], row[1])),
        lambda row: helper(row[-1]),
        lambda row: helper((row[-4], row[0], row[-3])),
        lambda row: (row[1] if row[0] else row[2], helper(row[2])),
        lambda row: helper((row.d, row.b)),
        unpacked,
    ],
)
def test_fields_are_what_the_record_has_at_their_places(function):
    found = plan(function, PLACED)
    assert found.strategy is Strategy.FIELDS
    given = {"a": [0, 1, None], "b": ["x", None, "z"], "class": [7, 8, 9], "d": [0.5, -0.0, 1.0]}
    batch = ColumnBatch(pa.RecordBatch.from_pydict(given, schema=arrow_schema(PLACED)))
    records = to_rows(batch, PLACED).values
    assert list(map(function, found.records(batch))) == list(map(function, records))


def test_a_place_and_a_name_need_a_named_tuple_of_all_fields():
    function = lambda row: helper((row[3], row.a))  # ruff: ignore[lambda-assignment]
    assert plan(function, PLACED).strategy is Strategy.RECORDS  # `class` cannot be a name
    assert plan(named_and_unpacked, PLACED).strategy is Strategy.RECORDS
    kind = Types.ROW_NAMED(["a", "b", "c", "d"], PLACED.get_field_types())
    batch = ColumnBatch(
        pa.RecordBatch.from_pydict(
            {"a": [1], "b": ["x"], "c": [2], "d": [0.5]}, schema=arrow_schema(kind)
        )
    )
    for one in (function, named_and_unpacked):
        found = plan(one, kind)
        assert found.strategy is Strategy.FIELDS
        (record,) = found.records(batch)
        assert one(record) == one(Row(a=1, b="x", c=2, d=0.5))


def test_a_name_that_cannot_be_an_attribute_needs_rows():
    kind = Types.ROW_NAMED(["a", "user-id"], [Types.LONG(), Types.LONG()])
    assert plan(lambda row: helper((row.a, row[1])), kind).strategy is Strategy.RECORDS
    assert plan(lambda row: helper((row[0], row[1])), kind).strategy is Strategy.FIELDS


def test_a_method_of_a_field_is_the_fields_and_one_of_the_record_the_records():
    assert plan(lambda row: helper(row.b.upper()), PLACED).strategy is Strategy.FIELDS
    with pytest.raises(Refused, match=ITSELF):
        fields_of(lambda row: helper(row.b()), PLACED)


def appending(bid):
    bid[3].append(helper("seen"))
    return True


def test_a_filter_that_may_change_a_list_of_its_record_gets_the_record():
    assert plan(appending).strategy is Strategy.FIELDS
    found = filter_plan_of(appending, arrow_schema(BID), BID)
    why = "it may change a list or dict of a record that is emitted"
    assert (found.strategy, found.why_not) == (Strategy.RECORDS, why)
    assert (
        filter_plan_of(lambda bid: helper(bid[0]), arrow_schema(BID), BID).strategy
        is Strategy.FIELDS
    )


def of_three(row):
    a, b, c = row
    return helper((a, b, c))


def with_traceback(row):
    try:
        return helper(row[0])
    except ValueError as error:
        return error.__traceback__.tb_frame


def star(row):
    first, *others = row
    return helper((first, others))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (of_three, "it unpacks another number of fields than the record has"),
        (star, ITSELF),
        (lambda row: helper((row[0], locals())), "it uses locals, which may show the record"),
        (lambda row: helper((row[0], inspect.stack())), "it uses stack, which may show the record"),
        (with_traceback, "it uses tb_frame, which may show the record"),
        (lambda row: helper(row[1:2]), ITSELF),
        (lambda row: helper(row[True]), ITSELF),
        (lambda row: helper(row["a"]), ITSELF),
        (lambda row: helper(row[row[0]]), ITSELF),
        (lambda row: helper(list(row)), ITSELF),
        (lambda row: helper([*row]), ITSELF),
        (lambda row: helper((row or Row(1))[0]), ITSELF),
        (lambda row: helper(row[4]), "the record has no field 4"),
        (lambda row: helper(row[-5]), "the record has no field -5"),
    ],
)
def test_what_a_tuple_does_not_do_as_a_row_needs_rows(function, why):
    with pytest.raises(Refused, match=re.escape(why)):
        fields_of(function, PLACED)
    assert plan(function, PLACED).strategy is Strategy.RECORDS


def test_a_row_that_is_changed_stays_a_row():
    def changed(row):
        row[0] = 1
        return helper(row[0])

    with pytest.raises(Refused, match=ITSELF):
        fields_of(changed, PLACED)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda bid: bid, ITSELF),
        (lambda bid: (bid, 1), ITSELF),
        (lambda bid: len(bid) + 1, ITSELF),
        (lambda bid: bid.as_dict(), "it uses 'as_dict' of the record"),
        (lambda bid: bid.missing, "the record has no field 'missing'"),
        (lambda bid: bid[7], "the record has no field 7"),
        (lambda bid: bid.count.real if bid == 3 else 1, ITSELF),
        (lambda bid: bid.days, "it reads a field of type ListTypeInfo<DateTypeInfo>"),
        (lambda bid: (helper(bid["id"]),), unknown("helper")),
        (math.floor, "builtin_function_or_method is no function of Python"),
        (lambda *bids: bids, "it takes any number of arguments"),
    ],
)  # fmt: skip
def test_other_functions_are_called_with_records(function, why):
    found = plan(function)
    assert (found.strategy, found.why_not) == (Strategy.RECORDS, why)


def test_only_the_columns_that_are_read_become_python_values():
    assert plan(lambda bid: (bid.name, bid.id)).places == (0, 2)


def test_a_tuple_is_read_whole():
    kind = Types.TUPLE([Types.LONG(), Types.STRING()])
    assert plan(lambda pair: pair[1:], kind).strategy is Strategy.COLUMNS
    assert plan(lambda pair: pair, kind).strategy is Strategy.COLUMNS


def test_a_bare_value_is_its_column():
    found = plan(lambda text: text.upper(), Types.STRING())
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"value": ["a", "ß"]}))
    assert found.results(batch) == ["A", "SS"]


def test_not_not_gives_a_truth_value():
    """Python 3.13 has one instruction for it, which means nothing before a test, but all before another jump."""
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"value": [0, 7]}))
    found = plan(lambda number: not not number, Types.LONG())  # ruff: ignore[double-negation]
    assert list(map(repr, found.results(batch))) == ["False", "True"]
    assert list(map(repr, plan(choice, Types.LONG()).results(batch))) == ["False", "7"]
    assert list(map(repr, plan(of_parts, Types.LONG()).results(batch))) == ["(0, 1)", "(True, 8)"]


def test_a_default_that_gets_other_items_is_noticed():
    given = [1]

    def with_default(bid, rates=given):
        return rates[0]

    found = plan(with_default)
    assert found.strategy is Strategy.COLUMNS
    given[0] = 2
    assert found.holds()
    given[0] = [2]
    assert not found.holds()


def test_a_plan_holds_while_the_variables_outside_are_the_same(monkeypatch):
    found = plan(lambda bid: bid.id + changing)
    assert found.holds()
    monkeypatch.setitem(globals(), "changing", 2)
    assert not found.holds()


def test_a_plan_does_not_hold_with_objects_in_a_dict_outside(monkeypatch):
    found = plan(lambda bid: RATES[bid.name])
    monkeypatch.setitem(RATES, "y", 3.0)
    assert found.holds()
    monkeypatch.setitem(RATES, "z", object())
    assert not found.holds()


def test_values_that_are_not_used_may_still_fail():
    def divided(bid):
        share = 1 // bid.id
        if bid.price is None:
            return 0.0
        return share

    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([0]), pa.array([None], pa.float64()), pa.array(["x"]),
            pa.array([[]], pa.list_(pa.string())), pa.array([1], pa.int32()),
            pa.array([[]], pa.list_(pa.date32())),
        ],
        names=BID.get_field_names(),
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError):
        plan(divided).results(ColumnBatch(batch))


HELD = Types.ROW_NAMED(
    ["m", "n", "l"],
    [
        Types.MAP(Types.STRING(), Types.LIST(Types.LONG())),
        Types.MAP(Types.STRING(), Types.LONG()),
        Types.LIST(Types.LONG()),
    ],
)


@pytest.mark.parametrize(
    "function",
    [
        lambda row: (row.m.get("x"), row.m.get("x")),
        lambda row: (row.m, row.m.get("x")),
        lambda row: (row.m, row.m["x"]),
        lambda row: (row.m | row.m, row.m),
    ],
)
def test_a_list_that_is_in_a_result_twice_is_told(function):
    """Row by row such a result is copied, so that its parts can be changed one by one."""
    assert plan(function, HELD).is_shared


def test_a_dict_or_set_that_is_made_can_be_changed():
    def joined(row):
        both = row.n | row.n
        return (both, both)

    def seen(row):
        both = SEEN | WORDS
        return (both, both, row.l)

    assert plan(joined, HELD).is_shared and plan(seen, HELD).is_shared


def test_a_list_of_a_map_is_not_changed_in_place():
    def more(row):
        found = row.m.get("x")
        found += [9]
        return (row.m, found)

    assert plan(more, HELD).why_not == "it may change an object in place"


def test_items_that_cannot_be_changed_are_computed_with():
    def more(row):
        total, first = row.n.get("x", 0), row.l[0]
        total += 1
        first += total
        return (first, first, row.l)

    found = plan(more, HELD)
    assert (found.strategy, found.is_shared) == (Strategy.COLUMNS, False)


def test_an_interpreter_that_is_not_known_calls_every_function(monkeypatch):
    monkeypatch.setattr(plans, "READS_BYTECODE", False)
    found = plan(lambda bid: bid.id)
    assert (found.strategy, found.why_not) == (
        Strategy.RECORDS,
        "the bytecode of this Python version is not known",
    )


def test_columns_of_another_type_than_declared_become_records():
    schema = arrow_schema(BID).set(0, pa.field("id", pa.int32()))
    assert plan_of(lambda bid: bid.id, schema, BID).strategy is Strategy.RECORDS
