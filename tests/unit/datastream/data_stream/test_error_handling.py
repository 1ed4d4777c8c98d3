"""What `on_error` takes, which errors count, and what is told of a record that was put aside."""

from dataclasses import replace

import pytest

from penstock.common import Types
from penstock.datastream import DeadLetter, ErrorPolicy, OutputTag
from penstock.datastream.columns import col
from penstock.engine.model.errors import (
    ConfigurationError,
    ExternalError,
    GraphError,
    UserCodeError,
)
from penstock.engine.runtime.elements import RowBatch
from penstock.testing import ManualClock, StreamHarness
from tests.tools.programs.poison import (
    BAD,
    CLEAN,
    DIRTY,
    POISON,
    POISON_COUNT,
    emit_batch,
    key,
    over,
    run,
    with_letters,
)

ROW = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])


# ---------------------------------------------------------------------- which errors count


def test_only_the_named_exceptions_are_put_aside():
    policy = ErrorPolicy.skip(only=(KeyError, ValueError))

    def fails(name):
        raise {"key": KeyError, "value": ValueError, "type": TypeError}[name]("x")

    with StreamHarness(lambda ds: ds.map(fails).on_error(policy)) as harness:
        harness.process_elements("key", "value")
        with pytest.raises(UserCodeError, match="TypeError: x"):
            harness.process_element("type")
        assert harness.poison_records == 2


class OwnEnd(BaseException):
    pass


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, OwnEnd])
def test_what_is_no_exception_fails_the_job_in_spite_of_a_policy(kind):
    def fails(value):
        raise kind("over")

    with StreamHarness(lambda ds: ds.map(fails).on_error("skip").name("Ender")) as harness:
        with pytest.raises(UserCodeError, match="over") as caught:
            harness.process_element(7)
        assert f"{kind.__name__}: over" in str(caught.value)
        assert "in operator: Ender" in str(caught.value) and "at record:   7" in str(caught.value)


def test_an_error_of_the_engine_fails_the_job_in_spite_of_a_policy():
    def fails(value):
        raise ExternalError("the disk is full")

    harness = StreamHarness(lambda ds: ds.map(fails).on_error("skip"))
    with harness, pytest.raises(ExternalError, match="disk is full"):
        harness.process_element(7)


def test_an_operator_behind_fails_the_job_itself():
    harness = StreamHarness(lambda ds: ds.map(key).on_error("skip").map(lambda v: 1 // 0))
    with harness, pytest.raises(UserCodeError, match="ZeroDivisionError"):
        harness.process_element(("a", 1))


# ---------------------------------------------------------------------- types and keys


def test_a_result_that_does_not_have_the_declared_type_is_put_aside():
    with StreamHarness(with_letters(lambda ds: ds.map(lambda v: v, Types.INT()))) as harness:
        emit_batch(harness, RowBatch([1, "no number", 3]))
        assert harness.values() == [1, 3]
        assert [one.record for one in harness.values(1)] == ["no number"]


def test_a_record_that_does_not_become_columns_is_put_aside():
    def build(ds):
        stream = ds.map(lambda v: v).filter(col("n") > 1).on_error(BAD)
        return stream, stream.get_side_output(BAD)

    with StreamHarness(build) as harness:
        harness.process_element("no columns at all")
        assert [one.record for one in harness.values(1)] == ["no columns at all"]


@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_record_without_a_key_is_put_aside_before_the_exchange(in_one_batch):
    def build(ds):
        keyed = ds.key_by(lambda v: 12 // v[1]).on_error(BAD)
        return keyed.map(lambda v: v), keyed.get_side_output(BAD)

    results, letters, count = run(build, DIRTY, None, in_one_batch=in_one_batch)
    assert results == CLEAN
    assert [one.record for one in letters] == [POISON] * POISON_COUNT == [POISON] * count


def test_a_key_of_a_wrong_type_is_put_aside():
    def build(ds):
        keyed = ds.key_by(key, Types.STRING()).on_error(BAD)
        return keyed.map(lambda v: v), keyed.get_side_output(BAD)

    results, letters, _ = run(build, [("a", 1), (3, 1), ([], 1)], None, in_one_batch=True)
    assert results == [("a", 1)]
    assert [one.record for one in letters] == [(3, 1), ([], 1)]


# ---------------------------------------------------------------------- letters, metrics, logs


def test_a_letter_says_what_where_and_when():
    with StreamHarness(
        with_letters(lambda ds: ds.map(over).name("Divides")), clock=ManualClock(1234)
    ) as harness:
        harness.process_element(POISON, 5)
        (letter,) = harness.values(1)
    assert letter == DeadLetter(
        record=POISON,
        error_class="ZeroDivisionError",
        error_text="division by zero",
        traceback=letter.traceback,
        operator="Divides",
        subtask=0,
        timestamp=5,
        processing_time=1234,
    )
    assert letter.traceback.endswith("ZeroDivisionError: division by zero")
    assert letter.as_row().as_dict() == {
        "record": "('a', 0)", "error_class": "ZeroDivisionError",
        "error_text": "division by zero", "traceback": letter.traceback,
        "operator": "Divides", "subtask": 0, "timestamp": 5, "processing_time": 1234,
    }  # fmt: skip


def test_a_letter_is_shown_as_one_line_that_says_nothing_twice():
    with StreamHarness(with_letters(lambda ds: ds.map(over).name("Divides"))) as harness:
        harness.process_element(POISON, 5)
        (letter,) = harness.values(1)
    line = over.__code__.co_firstlineno + 2
    place = f"Divides [0], {over.__code__.co_filename}:{line} in over"
    assert str(letter) == f"('a', 0): ZeroDivisionError: division by zero ({place})"
    text = "expected a number\nin 'a line'"
    malformed = replace(letter, record="a line", error_text=text, traceback="")
    assert str(malformed) == "ZeroDivisionError: expected a number in 'a line' (Divides [0])"


class Unsendable:
    def __reduce__(self):
        raise TypeError("not to be pickled")

    def __deepcopy__(self, _memo):
        return self  # What is emitted is copied.

    def __repr__(self):
        return "Unsendable()"


def test_a_record_that_cannot_be_pickled_is_replaced_by_its_repr():
    def build(ds):
        stream = ds.map(lambda _: Unsendable()).map(lambda _: 1 // 0).on_error(BAD)
        return stream, stream.get_side_output(BAD)

    with StreamHarness(build) as harness:
        harness.process_element(1)
        assert [one.record for one in harness.values(1)] == ["Unsendable()"]


class HugeError(Exception):
    def __str__(self):
        return "x" * 250_000_000


def test_a_huge_error_makes_a_small_letter():
    def fails(value):
        raise HugeError

    with StreamHarness(with_letters(lambda ds: ds.map(fails))) as harness:
        harness.process_element(1)
        (letter,) = harness.values(1)
    assert len(letter.error_text) < 5000 and "cut: 250 million characters" in letter.error_text
    assert len(letter.traceback) < 10_000


def test_a_sample_is_logged_at_most_every_ten_seconds_and_the_rest_at_the_end(caplog):
    clock = ManualClock(0)
    with StreamHarness(lambda ds: ds.map(over).name("Divides").on_error("skip"), clock=clock) as h:
        h.process_elements(POISON, POISON, POISON)
        h.set_processing_time(10_000)
        h.process_elements(POISON, POISON)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("poison_records=")[1].split(" built_at")[0] for line in lines] == [
        "1 since_last_line=1", "4 since_last_line=3", "5 since_last_line=1",
    ]  # fmt: skip
    assert "operator='Divides' subtask=0" in lines[0]
    assert "record=('a', 0)" in lines[0] and "test_error_handling.py:" in lines[0]
    assert "ZeroDivisionError: division by zero" in lines[0]


# ---------------------------------------------------------------------- programs that cannot run


def test_dead_letters_that_nobody_reads_are_an_error():
    with pytest.raises(GraphError, match=r"side output 'bad', which nobody reads.*get_side_output"):
        StreamHarness(lambda ds: ds.map(over).on_error(BAD))


@pytest.mark.parametrize(
    "make",
    [
        lambda ds: ds.key_by(col("k")).on_error("skip"),
        lambda ds: ds.rebalance().on_error("skip"),
        lambda ds: ds.union(ds).on_error("skip"),
    ],
    ids=["columns as keys", "a partitioning", "a union"],
)
def test_what_calls_no_function_takes_no_policy(make):
    with pytest.raises(GraphError, match="on_error"):
        StreamHarness(make, [ROW])


@pytest.mark.parametrize("given", ["ignore", None, 3, BAD.tag_id, ValueError])
def test_what_is_no_policy_is_refused(given):
    with pytest.raises(TypeError, match="on_error takes 'fail', 'skip', an OutputTag, a Sink"):
        StreamHarness(lambda ds: ds.map(over).on_error(given))


@pytest.mark.parametrize(
    "only", [(), BaseException, KeyboardInterrupt, "ValueError", (ValueError, 1)]
)
def test_a_policy_takes_classes_of_exceptions(only):
    with pytest.raises(TypeError, match="ErrorPolicy takes"):
        ErrorPolicy.skip(only)


def test_a_tag_of_dead_letters_has_no_type():
    with pytest.raises(ConfigurationError, match="Make the tag without a type"):
        ErrorPolicy.side_output(OutputTag("typed", Types.INT()))


def test_every_form_of_a_policy_is_taken():
    def build(ds):
        skipped = ds.map(over).on_error(ErrorPolicy.skip())
        aside = ds.map(over).on_error(ErrorPolicy.side_output(BAD, only=ArithmeticError))
        return skipped, aside.get_side_output(BAD), ds.filter(over).on_error(ErrorPolicy.fail())

    with StreamHarness(build) as harness:
        harness.process_element(("a", 3))
        assert [harness.values(n) for n in range(3)] == [[4], [], [("a", 3)]]
        with pytest.raises(UserCodeError):
            harness.process_element(POISON)
