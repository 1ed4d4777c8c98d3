"""What a user function can do wrong, and that it is told with its operator and record, never swallowed."""

import sys

import pytest

from penstock.common import Configuration, Types
from penstock.datastream import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.columns import col
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.errors import GraphError, JobExecutionError


def stream(values, type_info=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.use_executor(MiniCluster(parallelism=1, observer=JobObserver()).executor())
    return env.from_collection(values, type_info)


def failure_of(ds) -> str:
    with pytest.raises(JobExecutionError) as caught, ds.execute_and_collect() as rows:
        list(rows)
    return str(caught.value)


def exhausted(value):
    return next(iter([])) if value == 2 else value


@pytest.mark.parametrize(
    "apply",
    [
        lambda ds: ds.map(exhausted),
        lambda ds: ds.filter(exhausted),
        lambda ds: ds.flat_map(lambda v: [exhausted(v)]),
        lambda ds: ds.key_by(lambda v: v).map(exhausted),
        lambda ds: ds.key_by(lambda v: v).filter(exhausted),
        lambda ds: ds.key_by(lambda v: 0).reduce(lambda a, b: exhausted(b)),
    ],
    ids=["map", "filter", "flat_map", "keyed map", "keyed filter", "reduce"],
)
def test_a_stop_iteration_loses_no_rows_silently(apply):
    text = failure_of(apply(stream([1, 2, 3])).name("Exhausted"))
    assert "StopIteration" in text
    assert "in operator: Exhausted" in text
    assert "at record:   2" in text


def test_a_stop_iteration_in_a_key_selector_is_an_error():
    text = failure_of(stream([1, 2, 3]).key_by(exhausted).reduce(lambda a, b: a))
    assert "StopIteration" in text


def test_causes_are_shown():
    def wrapped(value):
        try:
            return {}[value]
        except KeyError as error:
            raise ValueError("no such thing") from error

    first, _, text = failure_of(stream([1]).map(wrapped)).partition("\n")
    assert first == "ValueError: no such thing"
    assert text.index("KeyError: 1") < text.index("direct cause") < text.index("no such thing")


def test_sys_exit_in_a_function_is_its_failure():
    text = failure_of(stream([7]).map(lambda _: sys.exit(3)).name("Leaving"))
    assert "SystemExit: 3" in text and "in operator: Leaving" in text and "at record:   7" in text


def test_records_that_never_become_columns_are_refused_by_the_operator_that_wants_them():
    rows = stream(["text"]).map(lambda v: v).name("Maker")
    wants = rows.filter(col("price") > 1).name("Wants columns")
    with pytest.raises(GraphError, match=r"operator 'Wants columns'.*takes columns.*declare"):
        wants.execute_and_collect()


def test_a_declared_type_holds_where_a_chain_ends_and_rounds_inside_it():
    text = failure_of(stream([1]).map(lambda v: "text", Types.INT()).name("Liar"))
    assert "TypeError" in text and "in operator: Liar" in text
    with stream([1.1]).map(lambda v: v, Types.FLOAT()).map(repr).execute_and_collect() as rows:
        assert list(rows) == ["1.100000023841858"]


def descriptor(name):
    return MapStateDescriptor(name, Types.STRING(), Types.INT())


class AsksForAnother(BroadcastProcessFunction):
    def process_element(self, value, ctx):
        ctx.get_broadcast_state(descriptor("others"))

    def process_broadcast_element(self, value, ctx):
        pass


class DeclaresTwice(MapFunction):
    def open(self, runtime_context):
        runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))
        runtime_context.get_state(ValueStateDescriptor("seen", Types.STRING()))

    def map(self, value):
        return value


def asks_for_another(ds):
    return ds.connect(ds.broadcast(descriptor("rules"))).process(AsksForAnother())


@pytest.mark.parametrize(
    ("apply", "told"),
    [
        (asks_for_another, ["no broadcast state 'others'", "at record:   1"]),
        (lambda ds: ds.key_by(lambda v: v).map(DeclaresTwice()), ["'seen' is declared twice"]),
    ],
    ids=["broadcast state", "declared twice"],
)
def test_what_an_api_refuses_is_told_as_the_functions_own_error(apply, told):
    text = failure_of(apply(stream([1])).name("Asking"))
    for part in [*told, "test_user_errors.py", "in operator: Asking", "built at: "]:
        assert part in text
    assert "penstock/engine/runtime/" not in text


class UsesKeys(KeyedBroadcastProcessFunction):
    """In a broadcast element, which has none. `how`: in which way."""

    def __init__(self, how):
        self.how = how

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

    def process_element(self, value, ctx):
        self.seen.update(value)
        yield value

    def process_broadcast_element(self, value, ctx):
        if self.how == "state":
            self.seen.update(1)
        elif self.how == "timer":
            ctx.timer_service().register_event_time_timer(5)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("how", ["state", "timer", "neither"])
def test_a_broadcast_element_has_no_keyed_state_and_no_timers(backend, how):
    env = StreamExecutionEnvironment(Configuration.from_dict({"state.backend.type": backend}))
    env.use_executor(MiniCluster(parallelism=1).executor())
    rules = MapStateDescriptor("rules", Types.INT(), Types.INT())
    elements = env.from_collection([1]).key_by(lambda value: value)
    made = elements.connect(env.from_collection([2, 3]).broadcast(rules)).process(UsesKeys(how))
    if how == "neither":
        with made.execute_and_collect() as results:
            assert list(results) == [1]
        return
    with (
        pytest.raises(
            JobExecutionError,
            match=r"keyed state and timers cannot be used here(.|\n)*broadcast element",
        ),
        made.execute_and_collect() as results,
    ):
        list(results)
