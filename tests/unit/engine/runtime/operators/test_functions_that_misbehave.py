"""User functions that end a loop early, answers that are no bools, and whose error it was."""

import sys

import numpy as np
import pytest

from penstock.connectors.datagen import DataGeneratorSource
from penstock.engine.model.errors import UserCodeError
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import ColumnBatch, RowBatch
from penstock.engine.runtime.keys import KeySelection
from penstock.engine.runtime.operator import Accepts
from penstock.engine.runtime.operators import (
    FilterOperator,
    KeyedFilterOperator,
    KeyedMapOperator,
    MapOperator,
)
from tests.tools.runtime.operator_harness import OperatorHarness
from tests.tools.runtime.task_parts import Logging, opened

BY_VALUE = KeySelection(lambda value: value)


def ends_at(bad):
    """A function that passes what it gets, and raises StopIteration at one value."""

    def call(value):
        return next(iter(())) if value == bad else True

    return UserFunction(call)


@pytest.mark.parametrize("bad", [1, 2, 3], ids=["first", "middle", "last"])
@pytest.mark.parametrize("stamps", [None, [5, 6, 7]], ids=["plain", "stamped"])
@pytest.mark.parametrize(
    "make",
    [
        MapOperator,
        FilterOperator,
        lambda function: KeyedMapOperator(function, BY_VALUE),
        lambda function: KeyedFilterOperator(function, BY_VALUE),
    ],
    ids=["map", "filter", "keyed map", "keyed filter"],
)
def test_a_stop_iteration_is_an_error_at_its_record(make, stamps, bad):
    harness = OperatorHarness(make(ends_at(bad)))
    with pytest.raises(RuntimeError, match=f"StopIteration at record {bad - 1} "):
        harness.feed([1, 2, 3], stamps)
    assert harness.operator.failing_record() == str(bad)


@pytest.mark.parametrize("bad", [1, 3])
def test_a_stop_iteration_in_a_key_selector_is_an_error_at_its_record(bad):
    keys = KeySelection(ends_at(bad).call)
    with pytest.raises(RuntimeError, match="StopIteration"):
        keys.keys_of_rows([1, 2, 3])
    harness = OperatorHarness(KeyedMapOperator(UserFunction(str), keys))
    with pytest.raises(RuntimeError, match="StopIteration"):
        harness.feed([1, 2, 3])
    assert harness.operator.failing_record() == str(bad)


def test_a_stop_iteration_in_a_generator_function_is_an_error_with_its_index():
    for generator, timestamp, what in [
        (ends_at(12).call, None, "generator"),
        (str, ends_at(12).call, "timestamp function"),
    ]:
        source = DataGeneratorSource(generator, 100, timestamp=timestamp)
        with pytest.raises(RuntimeError, match=f"{what} raised StopIteration at index 12"):
            source._generate(range(10, 20, 2))


# ---------------------------------------------------------------------- truth of a filter's answer


@pytest.mark.parametrize("stamps", [None, [5, 6, 7]], ids=["plain", "stamped"])
@pytest.mark.parametrize(
    "make",
    [FilterOperator, lambda function: KeyedFilterOperator(function, BY_VALUE)],
    ids=["filter", "keyed filter"],
)
def test_a_filters_answer_is_true_or_false_as_python_has_it(make, stamps):
    answers = {1: [4], 2: [], 3: [5, 6]}
    harness = OperatorHarness(make(UserFunction(answers.__getitem__)))
    harness.feed([1, 2, 3], stamps)
    assert harness.values == [1, 3]


@pytest.mark.parametrize("stamps", [None, [5, 6, 7]], ids=["plain", "stamped"])
def test_an_answer_without_a_truth_is_the_error_of_its_record(stamps):
    operator = FilterOperator(UserFunction(lambda v: np.array([1, 2]) if v == 2 else True))
    with pytest.raises(ValueError, match="ambiguous"):
        OperatorHarness(operator).feed([1, 2, 3], stamps)
    assert operator.failing_record() == "2"


# ---------------------------------------------------------------------- whose error it was


class WantsColumns(MapOperator):
    accepts = Accepts.COLUMNS

    def process(self, batch, input_index):
        assert isinstance(batch, ColumnBatch)
        self.watched(batch.data.to_pylist())
        next(self._position)
        return (batch,)


def text_of(chain, *batches) -> str:
    with pytest.raises(UserCodeError) as caught:
        for batch in batches:
            list(chain.feed(RowBatch(batch)))
    return str(caught.value)


def test_what_does_not_convert_at_the_head_names_the_operator_and_no_earlier_record():
    chain = opened([WantsColumns(UserFunction(str))], types=[Types.LONG()])
    text = text_of(chain, [1], ["text"])
    assert "in operator: Op0" in text
    assert "built at:    program.py:0" in text
    assert "at record" not in text


def test_what_does_not_convert_in_the_middle_is_the_error_of_who_wanted_it():
    head = MapOperator(UserFunction(lambda value: value))
    text = text_of(opened([head, WantsColumns(UserFunction(str))]), ["text"])
    assert "in operator: Op1" in text
    assert text.count("in operator") == 1


def test_a_cause_is_told_with_the_users_frames_only():
    def wrapped(value):
        try:
            return {}["inner"]
        except KeyError as error:
            raise ValueError("outer") from error

    def handling(value):
        try:
            return {}["inner"]
        except KeyError:
            raise ValueError("outer")  # ruff: ignore[raise-without-from-inside-except] - tested

    for function, says in [(wrapped, "direct cause"), (handling, "During handling")]:
        first, _, text = text_of(opened([MapOperator(UserFunction(function))]), [1]).partition("\n")
        assert first == "ValueError: outer"
        assert text.index("KeyError: 'inner'") < text.index(says) < text.index("ValueError: outer")
        assert "/penstock/engine/runtime/" not in text
        assert "at record:   1" in text


def test_parts_of_a_group_and_causes_in_a_circle_are_told():
    def group(value):
        raise ExceptionGroup("several", [ValueError("first part"), TypeError("second part")])

    def circle(value):
        one, other = ValueError("one"), ValueError("other")
        one.__cause__, other.__cause__ = other, one
        raise one

    text = text_of(opened([MapOperator(UserFunction(group))]), [1])
    assert "ValueError: first part" in text and "TypeError: second part" in text
    assert "ValueError: one" in text_of(opened([MapOperator(UserFunction(circle))]), [1])


@pytest.mark.parametrize("place", [0, 1])
def test_sys_exit_in_a_function_is_an_error_with_operator_and_record(place):
    functions = [str, str]
    functions[place] = lambda value: sys.exit("enough")
    text = text_of(opened([MapOperator(UserFunction(f)) for f in functions]), [7])
    assert "SystemExit: enough" in text
    assert f"in operator: Op{place}" in text
    assert "at record:   " in text


def test_sys_exit_in_open_and_close_is_an_error_too():
    class Leaves(Logging):
        def close(self) -> None:
            sys.exit(3)

    chain = opened([Leaves()])
    with pytest.raises(UserCodeError, match="SystemExit: 3"):
        chain.close()
