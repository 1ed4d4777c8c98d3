"""Keyed state and timers where there is no key. Expectations: Flink's "No key set", for each kind of state and each backend."""

import pytest

from penstock.common import Configuration, RestartStrategies, Time, Types
from penstock.datastream import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.model.errors import JobExecutionError
from penstock.engine.runtime.keys.hashing import NO_KEY, NoKeySet
from penstock.testing import CollectingSink, MiniCluster, StreamHarness
from tests.tools.runtime.keyed_backends import Average

USES = {
    "value": [lambda s: s.value(), lambda s: s.update(1), lambda s: s.update(None)],
    "list": [
        lambda s: s.get(), lambda s: s.add(1), lambda s: s.add_all([1]), lambda s: s.update([1]),
        list, lambda s: s.add_all([]), lambda s: s.update([]),
    ],
    "map": [
        lambda s: s.get("a"), lambda s: s.put("a", 1), lambda s: s.put_all({"a": 1}),
        lambda s: s.remove("a"), lambda s: "a" in s,
        lambda s: s.items(), list, lambda s: s.is_empty(), lambda s: s.put_all({}),
        lambda s: list(s.keys()), lambda s: list(s.values()),
    ],
    "reducing": [lambda s: s.get(), lambda s: s.add(1)],
    "aggregating": [lambda s: s.get(), lambda s: s.add(1)],
}  # fmt: skip
CALLS = [
    (kind, number)
    for kind, uses in USES.items()
    for number in range(len(uses) + 1)  # the last one is `clear`
]


def states(context, has_ttl):
    pickled = Types.PICKLED_BYTE_ARRAY()
    descriptors = {
        "value": ValueStateDescriptor("of value", pickled),
        "list": ListStateDescriptor("of list", pickled),
        "map": MapStateDescriptor("of map", pickled, pickled),
        "reducing": ReducingStateDescriptor("of reducing", lambda a, b: a + b, pickled),
        "aggregating": AggregatingStateDescriptor("of aggregating", Average(), pickled),
    }
    if has_ttl:
        for one in descriptors.values():
            one.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    return {
        "value": context.get_state(descriptors["value"]),
        "list": context.get_list_state(descriptors["list"]),
        "map": context.get_map_state(descriptors["map"]),
        "reducing": context.get_reducing_state(descriptors["reducing"]),
        "aggregating": context.get_aggregating_state(descriptors["aggregating"]),
    }


class Asking(KeyedProcessFunction):
    """Uses every kind of state where there is no key. `place`: where. The errors are emitted by the first record."""

    def __init__(self, place, has_ttl=False):
        self.place = place
        self.has_ttl = has_ttl
        self.errors = []

    def open(self, runtime_context):
        self.states = states(runtime_context, self.has_ttl)
        if self.place == "open":
            self.use_all()

    def use_all(self):
        for kind, number in CALLS:
            state = self.states[kind]
            use = [*USES[kind], lambda s: s.clear()][number]
            with pytest.raises(NoKeySet) as error:
                use(state)
            self.errors.append((kind, str(error.value)))

    def process_element(self, value, ctx):
        self.timers = ctx.timer_service()
        assert self.states["value"].value() is None, "what was tried belongs to no key"
        assert list(self.states["list"]) == self.states["map"].items() == []
        yield from self.errors

    def close(self):
        if self.place == "close":
            self.use_all()
            for method in ("register", "delete"):
                for domain in ("event", "processing"):
                    with pytest.raises(NoKeySet, match=r"in close\(\) of Asking"):
                        getattr(self.timers, f"{method}_{domain}_time_timer")(5)
            CLOSED.append(len(self.errors))


CLOSED = []


def run(build, backend="hashmap", mode=RuntimeExecutionMode.STREAMING, restarts=None, keyed=True):
    configuration = Configuration.from_dict({"state.backend.type": backend})
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    env.set_runtime_mode(mode)
    if restarts is not None:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    env.use_executor(MiniCluster().executor())
    sink = CollectingSink()
    values = env.from_collection(["a"])
    build(values.key_by(lambda value: value) if keyed else values).sink_to(sink)
    env.execute()
    return sink.values


@pytest.mark.parametrize("has_ttl", [False, True])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_every_use_in_open_is_an_error_that_names_function_state_and_the_places_to_use_it(
    backend, has_ttl
):
    found = run(lambda keyed: keyed.process(Asking("open", has_ttl)), backend)
    assert len(found) == len(CALLS)
    for kind, text in found:
        for part in ("No key set", "in open() of Asking", f"'of {kind}'", "process_element()"):
            assert part in text


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_so_it_is_in_close_with_timers_too(backend, mode):
    CLOSED.clear()
    assert run(lambda keyed: keyed.process(Asking("close")), backend, mode) == []
    assert [len(CALLS)] == CLOSED


class Counting(MapFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.count.update(1)

    def map(self, value):
        return value


def test_the_job_ends_because_no_restart_can_help():
    with pytest.raises(JobExecutionError, match=r"No key set.*in open\(\) of Counting.*'count'"):
        run(lambda keyed: keyed.map(Counting()), restarts=2**31 - 1)


class Sleeping(ProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(1)
        yield value


class Naming(ProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key()


class Rules(KeyedBroadcastProcessFunction):
    def process_element(self, value, ctx):
        yield ctx.get_current_key()

    def process_broadcast_element(self, value, ctx):
        assert not hasattr(ctx, "get_current_key")
        yield ctx.get_current_key()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda values: values.map(Counting()),
            r"Counting asks for the state 'count'.*Call key_by",
        ),
        (lambda values: values.process(Sleeping()), r"timers.*Sleeping has no keys\. Call key_by"),
        (lambda values: values.process(Naming()), r"get_current_key\(\).* no keys\. Call key_by"),
        (
            lambda values: (
                values
                .key_by(lambda value: value)
                .connect(values.broadcast(MapStateDescriptor("rules")))
                .process(Rules())
            ),
            r"get_current_key\(\).*a broadcast element belongs to no key.*process_element\(\)",
        ),
    ],
)
def test_so_does_one_that_wants_keys_of_a_stream_without_them(build, message):
    with pytest.raises(JobExecutionError, match=message):
        run(build, restarts=2**31 - 1, keyed=False)


class Late(KeyedProcessFunction):
    """Keeps what it has for others, as a thread of it would use it."""

    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))
        KEPT["state"] = self.seen

    def process_element(self, value, ctx):
        self.seen.update(value)
        KEPT["context"] = ctx
        KEPT["timers"] = ctx.timer_service()
        ctx.timer_service().register_event_time_timer(5)
        yield value

    def on_timer(self, timestamp, ctx):
        yield self.seen.value()


KEPT = {}


def test_between_records_and_timers_there_is_no_key():
    with StreamHarness(lambda records: records.key_by(lambda value: value).process(Late())) as one:
        for step in (lambda: one.process_element("a"), lambda: one.process_watermark(5)):
            step()
            for use in (
                KEPT["state"].value,
                lambda: KEPT["state"].update("b"),
                lambda: KEPT["timers"].register_event_time_timer(9),
                KEPT["context"].get_current_key,
            ):
                with pytest.raises(NoKeySet, match="where no record and no timer is processed"):
                    use()
        assert one.values() == ["a", "a"]
        assert one.event_time_timers() == 0


def test_nothing_can_be_looked_up_without_a_key():
    with pytest.raises(NoKeySet):
        hash((1, NO_KEY))
