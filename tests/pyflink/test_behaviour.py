"""What PyFlink's programs and tests rely on beyond names and signatures. Expectations are PyFlink 2.3's behaviour."""

import pytest

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.datastream import (
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeExecutionMode,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from penstock.engine.hosting.local.minicluster import MiniCluster
from penstock.engine.model.errors import JobExecutionError
from penstock.testing import CollectingSink
from tests.tools.programs.environments import collected, minicluster_environment
from tests.tools.programs.user_functions import ValueIsTime, first_of

MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]
PAIR = Types.ROW([Types.STRING(), Types.INT()])


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster(parallelism=2)).set_parallelism(2)


IN_ORDER = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ValueIsTime())


class Joined(ReduceFunction):
    """Joins texts, and counts with keyed state of its own what it has joined."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def reduce(self, value1, value2):
        self.count.update((self.count.value() or 1) + 1)
        return Row(value1[0] + value2[0], self.count.value())


@pytest.mark.parametrize("mode", MODES)
def test_a_reduce_function_has_keyed_state(env, mode):
    env.set_runtime_mode(mode)
    stream = env.from_collection([("a", 0), ("c", 1), ("d", 1), ("b", 0), ("e", 1)], PAIR)
    rows = [
        tuple(row) for row in collected(stream.key_by(lambda row: row[0] > "b").reduce(Joined()))
    ]
    if mode is RuntimeExecutionMode.STREAMING:
        assert sorted(rows) == [("a", 0), ("ab", 2), ("c", 1), ("cd", 2), ("cde", 3)]
    else:
        assert sorted(rows) == [("ab", 2), ("cde", 3)]


class Positive(CoMapFunction):
    def map1(self, value):
        return value if value > 0 else None

    def map2(self, value):
        return -value if value < 0 else None


@pytest.mark.parametrize("is_keyed", [False, True])
def test_a_co_map_that_gives_none_gives_nothing(env, is_keyed):
    numbers = env.from_collection([-1, 2, -3, 0, 4])
    both = numbers.connect(numbers)
    if is_keyed:
        both = both.key_by(lambda value: value % 2, lambda value: value % 2)
    assert sorted(collected(both.map(Positive()))) == [1, 2, 3, 4]


SIZES = OutputTag("sizes", Types.INT())
LATE = OutputTag("late")


class Contents(ProcessAllWindowFunction):
    def process(self, context, elements):
        values = sorted(elements)
        yield SIZES, len(values)
        yield values


class SizeOf(ProcessWindowFunction):
    def process(self, key, context, elements):
        return [(SIZES, len(list(elements))), key]


class Listed(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, sorted(elements)


@pytest.mark.parametrize(
    "assigner",
    [
        TumblingEventTimeWindows.of(Time.milliseconds(5)),
        EventTimeSessionWindows.with_gap(Time.milliseconds(2)),
    ],
)
def test_window_functions_have_side_outputs(env, assigner):
    main, aside = CollectingSink(), CollectingSink()
    stream = env.from_collection([1, 2, 7, 8, 12]).assign_timestamps_and_watermarks(IN_ORDER)
    windows = stream.window_all(assigner).process(Contents())
    windows.sink_to(main)
    windows.get_side_output(SIZES).sink_to(aside)
    env.execute()
    assert sorted(main.values) == [[1, 2], [7, 8], [12]]
    assert sorted(aside.values) == [1, 2, 2]


def test_a_windows_side_output_may_be_read_beside_its_late_records(env):
    main, aside, late = CollectingSink(), CollectingSink(), CollectingSink()
    stream = env.from_collection([1, 2, 7]).assign_timestamps_and_watermarks(IN_ORDER)
    windows = stream.key_by(lambda value: "k").window(
        TumblingEventTimeWindows.of(Time.milliseconds(5))
    )
    found = windows.trigger(CountTrigger.of(1)).side_output_late_data(LATE).process(SizeOf())
    found.sink_to(main)
    found.get_side_output(SIZES).sink_to(aside)
    found.get_side_output(LATE).sink_to(late)
    env.execute()
    assert (main.values, sorted(aside.values), late.values) == (["k"] * 3, [1, 1, 2], [])


def test_a_side_output_can_be_named_and_have_its_own_parallelism(env):
    stream = env.from_collection([1, 2, 7]).assign_timestamps_and_watermarks(IN_ORDER)
    windows = stream.window_all(TumblingEventTimeWindows.of(Time.milliseconds(5)))
    sizes = windows.process(Contents()).get_side_output(SIZES).name("Sizes").set_parallelism(1)
    assert sizes.get_name() == "Sizes"
    assert collected(sizes) == [2, 1]


class Subtasks(Partitioner):
    def open(self, runtime_context):
        self.shift = 1

    def partition(self, key, num_partitions):
        return (key + self.shift) % num_partitions


class Parity(KeySelector):
    def open(self, runtime_context):
        self.modulus = 2

    def get_key(self, value):
        return value % self.modulus


def test_what_partition_custom_gives_can_be_named(env):
    stream = env.from_collection([1, 2, 3]).partition_custom(Subtasks(), Parity())
    stream.name("partitioned").set_parallelism(2)
    assert stream.get_name() == "partitioned"
    assert sorted(collected(stream)) == [1, 2, 3]


def test_key_selectors_and_partitioners_are_opened(env):
    assert sorted(collected(env.from_collection([1, 2, 3]).key_by(Parity()).sum())) == [1, 2, 4]


def test_a_key_selector_has_no_runtime_context(env):
    class Asks(KeySelector):
        def open(self, runtime_context):
            self.subtask = runtime_context.get_index_of_this_subtask()

        def get_key(self, value):
            return self.subtask

    with pytest.raises(JobExecutionError, match="get_index_of_this_subtask is not known to a key"):
        collected(env.from_collection([1]).key_by(Asks()).sum())


@pytest.mark.parametrize("key", [lambda value: [value % 2], lambda value: {"odd": value % 2}])
@pytest.mark.parametrize("mode", MODES)
def test_keys_may_be_lists_and_dicts(env, key, mode):
    env.set_runtime_mode(mode)
    sums = collected(env.from_collection([1, 2, 3, 4]).key_by(key).sum())
    assert set(sums) >= {4, 6}


def test_what_is_collected_keeps_the_order_of_one_subtask(env):
    values = list(range(100))
    assert env.from_collection(values).execute_and_collect(limit=50) == values[:50]
    keyed = env.from_collection(values).key_by(lambda value: value % 7)
    assert collected(keyed) == [Row(f0=value % 7, f1=value) for value in values]


def test_one_subtask_of_a_sink_gets_all_records_of_a_key(env, capfd):
    env.from_collection([(key, n) for n in range(20) for key in "abcdef"]).key_by(first_of).print()
    env.execute()
    lines = [line for line in capfd.readouterr().out.splitlines() if "> (" in line]
    assert len(lines) == 120
    places = {(line[0], line.split("'")[1]) for line in lines}
    assert sorted(key for _, key in places) == list("abcdef")


def test_an_output_type_may_be_a_list_of_types(env):
    stream = env.from_collection([1]).map(
        lambda value: Row(value, "x"), [Types.INT(), Types.STRING()]
    )
    assert str(stream.get_type()) == "RowTypeInfo(Integer, String)"
    assert collected(stream) == [Row(f0=1, f1="x")]


def test_another_output_type_is_refused_where_it_is_given(env):
    with pytest.raises(
        TypeError, match=r"^Map, built at .*: output_type must be .* got <class 'int'>"
    ):
        env.from_collection([1]).map(str, output_type=int)


def test_a_broadcast_takes_map_state_descriptors_only(env):
    with pytest.raises(TypeError, match="must be MapStateDescriptor, got ValueStateDescriptor"):
        env.from_collection([1]).broadcast(ValueStateDescriptor("x", Types.INT()))


def test_a_named_row_is_taken_by_its_names(env):
    named = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    stream = env.from_collection([1]).map(lambda value: Row(b="x", a=value), output_type=named)
    assert collected(stream) == [Row(a=1, b="x")]
    wrong = env.from_collection([1]).map(lambda value: Row(a=value, c="x"), output_type=named)
    with pytest.raises(JobExecutionError, match=r"\['b'\] do not exist in \['a', 'c'\]"):
        collected(wrong)


class Bid:
    def __init__(self, price, auction):
        self.price = price
        self.auction = auction


def test_a_collection_may_be_of_objects_with_the_fields_as_attributes(env):
    named = Types.ROW_NAMED(["auction", "price"], [Types.STRING(), Types.LONG()])
    stream = env.from_collection([Bid(3, "x"), {"price": 4, "auction": "y"}], named)
    assert collected(stream) == [Row(auction="x", price=3), Row(auction="y", price=4)]


class Hundreds(WindowAssigner):
    """A window for each hundred ms; its default trigger asks the environment."""

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(timestamp // 100 * 100, timestamp // 100 * 100 + 100)]

    def get_default_trigger(self, env):
        assert env.get_parallelism() == 2
        return EventTimeTrigger.create()

    def is_event_time(self):
        return True


def test_an_own_window_assigners_default_trigger_is_given_the_environment(env):
    stream = env.from_collection([1, 2, 150]).assign_timestamps_and_watermarks(IN_ORDER)
    counts = stream.key_by(lambda value: "k").window(Hundreds()).process(Listed())
    assert collected(counts) == [("k", [1, 2]), ("k", [150])]


class Twice(MapFunction[int, str]):
    def map(self, value):
        return str(value * 2)


class Letters(FlatMapFunction[str, str]):
    def flat_map(self, value):
        yield from value


class IsEven(FilterFunction[str]):
    def filter(self, value):
        return int(value) % 2 == 0


class Itself(KeySelector[str, str]):
    def get_key(self, value):
        return value


def test_functions_may_say_their_types(env):
    letters = env.from_collection([6, 8]).map(Twice()).flat_map(Letters()).filter(IsEven())
    assert sorted(collected(letters.key_by(Itself()).map(len))) == [1, 1]


def test_functions_on_a_minicluster_import_added_files(env, tmp_path):
    (tmp_path / "penstock_added_module.py").write_text(
        "def doubled(value):\n    return 2 * value\n"
    )
    env.add_python_file(str(tmp_path / "penstock_added_module.py"))

    def double(value):
        from penstock_added_module import doubled

        return doubled(value)

    assert sorted(collected(env.from_collection([1, 2]).map(double))) == [2, 4]


class EveryRecord(Trigger[tuple, TimeWindow]):
    """An own trigger, written as in PyFlink's documentation."""

    def on_element(self, element, timestamp, window, ctx):
        return TriggerResult.FIRE_AND_PURGE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def on_merge(self, window, ctx):
        pass

    def clear(self, window, ctx):
        pass


def test_an_own_trigger_with_type_parameters_fires(env):
    stream = env.from_collection([1, 2, 7]).assign_timestamps_and_watermarks(IN_ORDER)
    windows = stream.key_by(lambda value: "k").window(
        TumblingEventTimeWindows.of(Time.milliseconds(5))
    )
    found = collected(windows.trigger(EveryRecord()).process(Listed()))
    assert sorted(found) == [("k", [1]), ("k", [2]), ("k", [7])]


FLOATS = [
    (Types.FLOAT(), 1.1),
    (Types.TUPLE([Types.FLOAT(), Types.DOUBLE()]), (1.1, 2.2)),
    (Types.ROW([Types.LIST(Types.FLOAT()), Types.STRING()]), Row(f0=[1.1, None], f1="x")),
    (Types.MAP(Types.STRING(), Types.FLOAT()), {"x": 1.1}),
]


@pytest.mark.parametrize(("type_info", "value"), FLOATS)
def test_a_float_is_collected_by_its_text_and_seen_as_it_is(env, type_info, value):
    stream = env.from_collection([value], type_info)
    sink = CollectingSink()
    stream.sink_to(sink)
    stream.map(repr).sink_to(sink)
    env.execute()
    assert sorted(sink.values, key=lambda one: isinstance(one, str))[0] == value
    assert "1.100000023841858" in next(one for one in sink.values if isinstance(one, str))
    assert collected(stream) == [value]


def test_a_keyed_streams_floats_are_collected_by_their_text(env):
    keyed = env.from_collection([1.1], Types.FLOAT()).key_by(lambda value: "k")
    assert collected(keyed) == [Row(f0="k", f1=1.1)]


def test_a_union_of_rows_with_other_names_has_the_names_of_the_first(env):
    first = env.from_collection(
        [(1, "x")], Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])
    )
    second = env.from_collection([(2, "y")], Types.ROW([Types.INT(), Types.STRING()]))
    both = first.union(second)
    assert str(both.get_type()) == "RowTypeInfo(a: Integer, b: String)"
    assert sorted(collected(both.map(lambda row: (row.a, row["b"])))) == [(1, "x"), (2, "y")]


class Sorted(CoMapFunction):
    """Even numbers aside."""

    def map1(self, value):
        return value if value % 2 else (SIZES, value)

    map2 = map1


MAPPED = {
    "map": lambda numbers: numbers.map(Sorted().map1),
    "flat_map": lambda numbers: numbers.flat_map(lambda value: [Sorted().map1(value)]),
    "keyed map": lambda numbers: numbers.key_by(bool).map(Sorted().map1, Types.INT()),
    "keyed flat_map": lambda numbers: numbers.key_by(bool).flat_map(
        lambda value: iter([Sorted().map1(value)])
    ),
    "co map": lambda numbers: numbers.connect(numbers.filter(lambda value: False)).map(Sorted()),
}


@pytest.mark.parametrize("name", MAPPED)
def test_maps_have_side_outputs_too(env, name):
    main, aside = CollectingSink(), CollectingSink()
    mapped = MAPPED[name](env.from_collection([1, 2, 3, 4]))
    mapped.sink_to(main)
    mapped.get_side_output(SIZES).sink_to(aside)
    env.execute()
    assert (sorted(main.values), sorted(aside.values)) == ([1, 3], [2, 4])


class Unpaid(CoProcessFunction):
    """Orders whose payment does not come: keyed state, keys and timers in a function that is not called keyed."""

    def open(self, runtime_context):
        self.is_paid = runtime_context.get_state(ValueStateDescriptor("paid", Types.BOOLEAN()))

    def process_element1(self, value, ctx):
        ctx.timer_service().register_event_time_timer(10)

    def process_element2(self, value, ctx):
        self.is_paid.update(True)

    def on_timer(self, timestamp, ctx):
        if not self.is_paid.value():
            yield ctx.get_current_key(), timestamp


@pytest.mark.parametrize("mode", MODES)
def test_a_co_process_function_of_keyed_streams_has_state_and_timers(env, mode):
    env.set_runtime_mode(mode)
    orders, payments = env.from_collection(["a", "b", "c"]), env.from_collection(["b"])
    both = orders.connect(payments).key_by(lambda order: order, lambda payment: payment)
    assert sorted(collected(both.process(Unpaid()))) == [("a", 10), ("c", 10)]


def test_an_on_timer_of_a_co_process_function_with_other_arguments_is_refused(env):
    class Hasty(Unpaid):
        def on_timer(self, timestamp):
            return None

    keyed = env.from_collection(["a"]).key_by(lambda value: value)
    with pytest.raises(TypeError, match=r"Keyed Co-Process, built at .*on_timer\(timestamp\)"):
        keyed.connect(keyed).process(Hasty())
