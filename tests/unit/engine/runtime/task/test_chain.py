"""OperatorChain: where output goes, what may pass while idle, whose error it was."""

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import WatermarkStrategy
from penstock.datastream.connectors import NumberSequenceSource
from penstock.engine.model.errors import CancelSignal, EngineBug, UserCodeError
from penstock.engine.model.types import Types
from penstock.engine.runtime.context import UserFunction
from penstock.engine.runtime.elements import (
    ACTIVE,
    IDLE,
    ColumnBatch,
    EndOfData,
    LatencyMarker,
    RowBatch,
    Tagged,
    Watermark,
)
from penstock.engine.runtime.operator import Accepts, Operator
from penstock.engine.runtime.operators import MapOperator
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.engine.runtime.task.chain import OperatorChain
from tests.tools.runtime.task_parts import (
    Clock,
    Logging,
    context_for,
    opened,
    output,
    spec_of,
    values_of,
)


class SplitsOff(Logging):
    """Odd numbers go to the side output `odd`."""

    def process(self, batch, input_index):
        yield RowBatch([value for value in batch.values if value % 2 == 0])
        yield Tagged("odd", RowBatch([value for value in batch.values if value % 2]))


class Emits(Logging):
    """Answers each batch with these elements."""

    def __init__(self, *elements) -> None:
        super().__init__()
        self.elements = elements

    def process(self, batch, input_index):
        return self.elements


def routed(iterator) -> list:
    """(output, element) of a chain, batches as lists."""
    found = [pair for pair in iterator if pair is not None]
    return [(place, values_of([e]) if hasattr(e, "values") else e) for place, e in found]


def test_main_and_side_outputs_go_to_their_operators_and_outputs():
    a, b = Logging("a"), Logging("b")
    chain = opened(
        [SplitsOff(), a, b],
        targets=[[(None, 1), ("odd", 2)], [], []],
        outputs=[output(1), output(2), output(0, "odd"), output(0)],
    )
    assert sorted(routed(chain.feed(RowBatch([1, 2, 3])))) == [
        (0, [2]), (1, [1, 3]), (2, [1, 3]), (3, [2]),
    ]  # fmt: skip
    assert ("a", "process", 0, [2]) in a.log
    assert ("b", "process", 0, [1, 3]) in b.log


def test_a_side_output_that_nobody_reads_is_dropped():
    chain = opened([SplitsOff()])
    assert routed(chain.feed(RowBatch([1, 2]))) == [(0, [2])]


def test_several_targets_each_get_every_batch_and_every_watermark():
    a, b = Logging("a"), Logging("b")
    chain = opened(
        [Logging(), a, b],
        targets=[[(None, 1), (None, 2)], [], []],
        outputs=[output(1), output(2)],
    )
    assert routed(chain.feed(RowBatch([1]))) == [(0, [1]), (1, [1])]
    assert routed(chain.feed(Watermark(7))) == [(0, Watermark(7)), (1, Watermark(7))]


def test_watermarks_and_statuses_go_along_side_outputs():
    chain = opened(
        [SplitsOff(), Logging("side")],
        targets=[[("odd", 1)], []],
        outputs=[output(0), output(1)],
    )
    assert routed(chain.feed(Watermark(3))) == [(1, Watermark(3)), (0, Watermark(3))]
    assert sorted(place for place, _ in routed(chain.feed(IDLE))) == [0, 1]


def test_while_idle_is_announced_watermarks_are_held_and_records_pass():
    chain = opened([Logging()])
    given = [IDLE, IDLE, Watermark(5), RowBatch([1]), ACTIVE, ACTIVE, Watermark(6)]
    passed = [element for given_one in given for _, element in routed(chain.feed(given_one))]
    assert passed == [IDLE, [1], ACTIVE, Watermark(6)]


def test_end_of_data_from_an_operator_does_not_pass_and_empty_batches_neither():
    chain = opened([Emits(RowBatch([]), EndOfData(), RowBatch([1]))])
    assert routed(chain.feed(RowBatch([0]))) == [(0, [1])]


def test_latency_markers_pass_by_the_operators():
    head = Logging("head")
    marker = LatencyMarker(1, "source", 0)
    assert routed(opened([head, Logging()]).feed(marker)) == [(0, marker)]
    assert head.log == [("head", "open")]


def test_what_a_source_made_starts_behind_the_head():
    head, tail = Logging("head"), Logging("tail")
    assert routed(opened([head, tail]).emit_from_head(RowBatch([1]))) == [(0, [1])]
    assert head.log == [("head", "open")]
    assert tail.log[-1] == ("tail", "process", 0, [1])


def test_none_from_an_operator_is_a_place_to_stop():
    assert next(opened([Emits(None, RowBatch([1]))]).feed(RowBatch([0]))) is None


def test_columns_become_rows_only_before_an_operator_that_wants_rows():
    class Kinds(Operator):
        def __init__(self, accepts):
            self.accepts, self.seen = accepts, []

        def process(self, batch, input_index):
            self.seen.append(type(batch))
            return (batch,)

    any_kind, rows, columns = Kinds(Accepts.ANY), Kinds(Accepts.ROWS), Kinds(Accepts.COLUMNS)
    kind = Types.ROW_NAMED(["a"], [Types.LONG()])
    chain = opened([any_kind, columns, rows], types=[kind])
    list(chain.feed(ColumnBatch(pa.record_batch({"a": [1, 2]}))))
    assert (any_kind.seen, columns.seen, rows.seen) == ([ColumnBatch], [ColumnBatch], [RowBatch])
    assert chain.takes_rows
    assert not opened([Kinds(Accepts.ANY)]).takes_rows
    source = SourceOperator(NumberSequenceSource(0, 1), WatermarkStrategy.no_watermarks())
    unopened = OperatorChain(spec_of([source, Kinds(Accepts.COLUMNS)]), Clock().now_ms)
    assert not unopened.takes_rows  # a source's column batches are not cut into slices


@pytest.mark.parametrize(("records", "expected"), [(7, [3, 3, 1]), (6, [3, 3]), (2, [2])])
def test_many_columns_become_records_in_parts_that_a_cache_can_hold(records, expected):
    class InParts(Logging):
        records_at_once = 3

    operator = InParts()
    chain = opened([operator], outputs=[output()])
    numbers, stamps = list(range(records)), np.arange(records)
    batch = ColumnBatch(pa.RecordBatch.from_pydict({"n": numbers}), stamps)
    made = [element for _, element in chain.feed(batch)]
    assert [len(element) for element in made] == expected
    assert [row[0] for element in made for row in element.values] == numbers
    assert [stamp for element in made for stamp in element.timestamps] == numbers
    assert chain.nodes[0].counts.records_in == records


# ---------------------------------------------------------------------- life


def test_operators_open_and_close_from_tail_to_head():
    log = []
    chain = opened([Logging("head", log), Logging("middle", log), Logging("tail", log)])
    chain.close()
    assert log == [
        (name, what) for what in ("open", "close") for name in ("tail", "middle", "head")
    ]


def test_all_operators_are_closed_and_the_first_error_is_raised():
    class BadClose(Logging):
        def close(self) -> None:
            super().close()
            raise RuntimeError(f"close of {self.name}")

    log = []
    chain = opened([BadClose("head", log), Logging("middle", log), BadClose("tail", log)])
    with pytest.raises(UserCodeError, match="close of tail"):
        chain.close()
    assert [name for name, what, *_ in log if what == "close"] == ["tail", "middle", "head"]


def test_all_operators_are_closed_also_when_one_is_interrupted():
    class Interrupted(Logging):
        def close(self) -> None:
            raise CancelSignal

    log = []
    chain = opened([Logging("head", log), Interrupted("tail", log)])
    with pytest.raises(CancelSignal):
        chain.close()
    assert ("head", "close") in log


def test_only_due_timers_fire_and_each_once():
    clock, head, tail = Clock(), Logging("head"), Logging("tail")
    chain = opened([head, tail], clock)
    head.context.timers.schedule(10)
    tail.context.timers.schedule(20)
    assert chain.next_timer_ms() == 10
    list(chain.fire_timers(15))
    list(chain.fire_timers(15))
    assert [entry for entry in head.log if entry[1] == "timer"] == [("head", "timer", 15)]
    assert [entry for entry in tail.log if entry[1] == "timer"] == []
    tail.context.timers.cancel()
    assert chain.next_timer_ms() is None


def test_what_is_no_operator_is_refused():
    with pytest.raises(EngineBug, match="Op0"):
        opened([object()])
    with pytest.raises(EngineBug, match="EndOfData"):
        opened([Logging()]).feed(EndOfData())


# ---------------------------------------------------------------------- errors


def fail_at_three(value):
    if value == 3:
        raise ValueError("three is too many")
    return value


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_user_error_is_wrapped_once_and_names_operator_record_and_line(place):
    operators = [MapOperator(UserFunction(lambda value: value)) for _ in range(3)]
    operators[place] = MapOperator(UserFunction(fail_at_three))
    with pytest.raises(UserCodeError) as caught:
        list(opened(operators).feed(RowBatch([1, 2, 3, 4])))
    text = str(caught.value)
    assert text.startswith("ValueError: three is too many\n  File ")
    assert text.count("ValueError: three is too many") == 1
    assert text.count("in operator:") == 1
    assert f"in operator: Op{place}" in text
    assert "at record:   3" in text
    assert f"built at:    program.py:{place}" in text
    assert "/penstock/engine/runtime/" not in text
    assert isinstance(caught.value.__cause__, ValueError)


def test_errors_in_watermarks_timers_open_and_end_name_their_operator():
    class Bad(Logging):
        def process_watermark(self, watermark, input_index):
            raise RuntimeError("bad watermark")

        def on_processing_time(self, now_ms):
            raise RuntimeError("bad timer")

        def finish(self):
            raise RuntimeError("bad finish")

    bad = Bad("bad")
    chain = opened([Logging(), bad])
    bad.context.timers.schedule(1)
    for call, says in [
        (lambda: list(chain.feed(Watermark(1))), "bad watermark"),
        (lambda: list(chain.fire_timers(1)), "bad timer"),
        (lambda: list(chain.finish()), "bad finish"),
    ]:
        with pytest.raises(UserCodeError, match=says) as caught:
            call()
        assert "in operator: Op1" in str(caught.value)


def test_our_own_errors_pass_as_they_are():
    def broken(_value):
        raise EngineBug("ours")

    with pytest.raises(EngineBug, match=r"^ours$"):
        list(opened([MapOperator(UserFunction(broken))]).feed(RowBatch([1])))


class Generating(Logging):
    """Its code runs again after each batch that it emits."""

    def process(self, batch, input_index):
        yield from super().process(batch, input_index)


@pytest.mark.parametrize(
    ("kind", "entered"),
    [(Logging, ["Op0", "Op1"]), (Generating, ["Op0", "Op1", "Op1", "Op0"])],
    ids=["all at once", "piece by piece"],
)
def test_the_chain_tells_which_operator_runs(kind, entered):
    calls = Calls()
    chain = OperatorChain(spec_of([kind(), kind()]), Clock().now_ms, calls)
    chain.open(context_for)
    calls.seen.clear()
    for _ in chain.feed(RowBatch([1])):
        assert calls.seen[-1] == "out", "what leaves the chain is written outside of users' code"
    assert [one for one in calls.seen if one != "out"] == entered
    assert calls.seen[-1] == "out"


class Calls:
    """`OperatorCalls`: which operator's code ran, and when it was left."""

    def __init__(self):
        self.seen = []

    def entered(self, operator):
        self.seen.append(operator)

    def complain(self, line):
        self.seen.append(line)

    def left(self):
        self.seen.append("out")
