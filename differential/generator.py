"""Random DataStream programs as Python text, the same for both engines. Runs nothing.

What decides the result is in the program alone. All watermarks but the last are below all timers, and functions that
depend on the order of records stand only behind streams whose order both engines define.

PyFlink loses results of timers and windows in BATCH, and hangs. So a program of mode BATCH has one of two kinds. One has
neither, and both engines run it in BATCH. The other gives the same in both modes, and PyFlink runs it in STREAMING.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

TYPES = {"S": "Types.STRING()", "L": "Types.LONG()", "D": "Types.DOUBLE()", "B": "Types.BOOLEAN()"}
NUMBERS = "LD"
MOST_STEPS = 5


@dataclass(frozen=True)
class Program:
    """`text`: defines `build(env)`, which returns streams by name. `is_batch`: its runtime mode.

    `is_batch_on_flink`: the mode on PyFlink. `without_merges`: the same program without an accumulator that merges; None:
    it has none.
    """

    seed: int
    text: str
    is_batch: bool
    has_chains: bool
    features: frozenset[str]
    is_batch_on_flink: bool = False
    without_merges: str | None = None


@dataclass(frozen=True)
class Stream:
    """A variable of the program. `fields`: a letter for each field of its tuples, the key first, the event time second.

    `is_typed`: its type is declared. `is_ordered`: the order of a key's records is defined. `has_times`: records have
    timestamps.
    """

    name: str
    fields: str
    is_typed: bool
    is_ordered: bool
    has_times: bool = False


@dataclass
class Builder:
    """Grows a program step by step.

    `has_timers`: windows and timers are allowed. `has_order`: functions that depend on the order or the mode are allowed.
    """

    rng: random.Random
    is_batch: bool
    has_timers: bool
    has_order: bool
    lines: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    features: set[str] = field(default_factory=set)
    merges: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def name(self, prefix: str = "s") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def add(
        self, expression: str, fields: str, *, typed: bool, ordered: bool, times: bool
    ) -> Stream:
        stream = Stream(self.name(), fields, typed, ordered, times)
        self.lines.append(f"{stream.name} = {expression}")
        return stream

    def type_of(self, fields: str) -> str:
        return f"Types.TUPLE([{', '.join(TYPES[one] for one in fields)}])"

    def declared(self, fields: str) -> tuple[str, bool]:
        """A second argument with the type, or nothing."""
        if self.rng.random() < 0.5:
            return f", {self.type_of(fields)}", True
        return "", False

    def cls(self, text: str) -> str:
        """Define a class; `NAME` in its text is its name."""
        name = self.name("F")
        self.classes.append(text.replace("NAME", name))
        self.features.add(text.split("(", 1)[1].split(")", 1)[0])
        return name


def program(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    is_batch = rng.random() < 0.35
    has_timers = not is_batch or rng.random() < 0.5
    builder = Builder(rng, is_batch, has_timers, has_order=not is_batch or not has_timers)
    stream = _source(builder)
    for _ in range(rng.randint(1, MOST_STEPS)):
        stream = rng.choice(_STEPS)(builder, stream)
    builder.outputs["main"] = stream.name
    returned = ", ".join(f"{name!r}: {value}" for name, value in builder.outputs.items())
    body = "\n".join(f"    {line}" for line in [*builder.lines, f"return {{{returned}}}"])
    text = "\n".join([*builder.classes, f"def build(env):\n{body}\n"])
    without = text
    for merging, plain in builder.merges.items():
        without = without.replace(merging, plain)
    return Program(
        seed, text, is_batch,
        has_chains=rng.random() < 0.8,
        features=frozenset(builder.features),
        is_batch_on_flink=is_batch and not has_timers,
        without_merges=without if builder.merges else None,
    )  # fmt: skip


# ---------------------------------------------------------------- sources


def _source(b: Builder) -> Stream:
    fields = "SL" + "".join(b.rng.choices("SLDB", k=b.rng.randint(0, 2)))
    times = b.rng.sample(range(-20, 200), b.rng.randint(1, 12))
    if b.rng.random() < 0.5:
        times.sort()
    records = [
        (b.rng.choice("abc"), time, *(_value(b, one) for one in fields[2:])) for time in times
    ]
    typed = b.rng.random() < 0.6
    type_info = f", type_info={b.type_of(fields)}" if typed else ""
    source = b.add(
        f"env.from_collection({records!r}{type_info})",
        fields,
        typed=typed,
        ordered=True,
        times=False,
    )
    return _with_times(b, source) if b.rng.random() < 0.8 else source


def _value(b: Builder, letter: str) -> object:
    if letter == "S":
        return b.rng.choice(["x", "yy", "", "ü"])
    if letter == "L":
        return b.rng.choice([0, 1, -1, 7, 2**40])
    return b.rng.randint(-8, 8) / 4 if letter == "D" else b.rng.random() < 0.5


def _with_times(b: Builder, s: Stream) -> Stream:
    b.features.add("watermarks")
    strategy = "WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1000))"
    return b.add(
        f"{s.name}.assign_timestamps_and_watermarks({strategy}.with_timestamp_assigner(Second()))",
        s.fields, typed=s.is_typed, ordered=s.is_ordered, times=True,
    )  # fmt: skip


# ---------------------------------------------------------------- steps without a key


def _map(b: Builder, s: Stream) -> Stream:
    b.features.add("map")
    fields = s.fields + b.rng.choice("SLDB")
    last = {"S": "x[0] + 'm'", "L": "x[1] * 3", "D": "x[1] / 4", "B": "x[1] > 20"}[fields[-1]]
    typed, is_typed = b.declared(fields)
    return b.add(
        f"{s.name}.map(lambda x: (*x, {last}){typed})",
        fields, typed=is_typed, ordered=s.is_ordered, times=s.has_times,
    )  # fmt: skip


def _filter(b: Builder, s: Stream) -> Stream:
    b.features.add("filter")
    condition = b.rng.choice(["x[1] % 3 != 0", "x[0] != 'b'", "x[1] > 0", "x[1] > 10 ** 6"])
    return b.add(
        f"{s.name}.filter(lambda x: {condition})",
        s.fields, typed=s.is_typed, ordered=s.is_ordered, times=s.has_times,
    )  # fmt: skip


def _flat_map(b: Builder, s: Stream) -> Stream:
    b.features.add("flat_map")
    result = b.rng.choice([
        "[x] * (x[1] % 3)",
        "[x, (x[0] + 'f', *x[1:])]",
        "(y for y in [x])",
        "[]",
    ])
    typed, is_typed = b.declared(s.fields)
    return b.add(
        f"{s.name}.flat_map(lambda x: {result}{typed})",
        s.fields, typed=is_typed, ordered=s.is_ordered, times=s.has_times,
    )  # fmt: skip


def _process(b: Builder, s: Stream) -> Stream:
    tag = b.name("T")
    b.classes.append(f"{tag} = OutputTag({tag!r}, Types.STRING())")
    name = b.cls(
        "class NAME(ProcessFunction):\n"
        "    def process_element(self, value, ctx):\n"
        "        if value[1] % 2:\n"
        f"            yield {tag}, '%s %s' % (value[0], ctx.timestamp())\n"
        "        yield value\n"
    )
    typed, is_typed = b.declared(s.fields)
    made = b.add(
        f"{s.name}.process({name}(){typed})",
        s.fields, typed=is_typed, ordered=s.is_ordered, times=s.has_times,
    )  # fmt: skip
    b.outputs[f"side {tag}"] = f"{made.name}.get_side_output({tag})"
    return made


def _union(b: Builder, s: Stream) -> Stream:
    b.features.add("union")
    other = b.add(
        f"{s.name}.filter(lambda x: x[1] % 2 == 0)",
        s.fields, typed=s.is_typed, ordered=s.is_ordered, times=s.has_times,
    )  # fmt: skip
    return b.add(
        f"{s.name}.union({other.name})",
        s.fields,
        typed=s.is_typed,
        ordered=False,
        times=s.has_times,
    )


def _connect(b: Builder, s: Stream) -> Stream:
    other = _map(b, s)
    if b.rng.random() < 0.5:
        name = b.cls(
            "class NAME(CoMapFunction):\n"
            "    def map1(self, value):\n        return (value[0], value[1], 'one')\n"
            "    def map2(self, value):\n        return (value[0] + '2', value[1], 'two')\n"
        )
        call = "map"
    else:
        name = b.cls(
            "class NAME(CoFlatMapFunction):\n"
            "    def flat_map1(self, value):\n        yield (value[0], value[1], 'one')\n"
            "    def flat_map2(self, value):\n"
            "        if value[1] % 2:\n            yield (value[0] + '2', value[1], 'two')\n"
        )
        call = "flat_map"
    typed, is_typed = b.declared("SLS")
    return b.add(
        f"{s.name}.connect({other.name}).{call}({name}(){typed})",
        "SLS", typed=is_typed, ordered=False, times=s.has_times,
    )  # fmt: skip


# ---------------------------------------------------------------- steps with a key


def _keyed(b: Builder, s: Stream) -> str:
    b.features.add("key_by")
    key = b.rng.choice(["x[0]", "x[0]", "x[1] % 3", "(x[0], x[1] % 2)"])
    kind = {"x[0]": "STRING", "x[1] % 3": "LONG"}.get(key)
    declared = f", Types.{kind}()" if kind is not None and b.rng.random() < 0.4 else ""
    return f"{s.name}.key_by(lambda x: {key}{declared})"


def _rolling(b: Builder, s: Stream) -> Stream:
    if not (s.is_ordered and b.has_order):
        return _window(b, s)
    if b.rng.random() < 0.4:
        b.features.add("reduce")
        call = "reduce(lambda a, b: (a[0], a[1] + b[1], *b[2:]))"
    else:
        name = b.rng.choice(["sum", "min", "max", "min_by", "max_by"])
        b.features.add(name)
        call = f"{name}({b.rng.choice([at for at, one in enumerate(s.fields) if one in NUMBERS])})"
    return b.add(
        f"{_keyed(b, s)}.{call}",
        s.fields, typed=s.is_typed, ordered=not b.is_batch, times=s.has_times,
    )  # fmt: skip


def _stateful(b: Builder, s: Stream) -> Stream:
    if not (s.is_ordered and b.has_order):
        return _window(b, s)
    name = b.cls(
        "class NAME(KeyedProcessFunction):\n"
        "    def open(self, ctx):\n"
        "        self.n = ctx.get_state(ValueStateDescriptor('n', Types.LONG()))\n"
        "        self.seen = ctx.get_list_state(ListStateDescriptor('seen', Types.LONG()))\n"
        "        by = MapStateDescriptor('by', Types.STRING(), Types.LONG())\n"
        "        self.by = ctx.get_map_state(by)\n"
        "    def process_element(self, value, ctx):\n"
        "        n = (self.n.value() or 0) + 1\n"
        "        self.n.update(n)\n"
        "        self.seen.add(value[1])\n"
        "        self.by.put(value[0], n)\n"
        "        yield (value[0], value[1], n, sum(self.seen.get()), len(list(self.by.keys())))\n"
    )
    typed, is_typed = b.declared("SLLLL")
    return b.add(
        f"{_keyed(b, s)}.process({name}(){typed})",
        "SLLLL", typed=is_typed, ordered=not b.is_batch, times=s.has_times,
    )  # fmt: skip


def _timers(b: Builder, s: Stream) -> Stream:
    if not b.has_timers or (not s.has_times and b.has_order):
        return _stateful(b, s)
    if not s.has_times:
        s = _with_times(b, s)
    delete = "        ctx.timer_service().delete_event_time_timer(value[1] + 9)\n"
    name = b.cls(
        "class NAME(KeyedProcessFunction):\n"
        "    def open(self, ctx):\n"
        "        plus = ReducingStateDescriptor('n', lambda a, b: a + b, Types.LONG())\n"
        "        self.n = ctx.get_reducing_state(plus)\n"
        "    def process_element(self, value, ctx):\n"
        "        self.n.add(1)\n"
        "        ctx.timer_service().register_event_time_timer(value[1] + 5)\n"
        "        ctx.timer_service().register_event_time_timer(value[1] // 10 * 10 + 9)\n"
        + (delete if b.rng.random() < 0.3 and s.is_ordered and b.has_order else "")
        + "        return []\n"
        "    def on_timer(self, timestamp, ctx):\n"
        "        yield (str(ctx.get_current_key()), timestamp, self.n.get())\n"
    )
    typed, is_typed = b.declared("SLL")
    return b.add(
        f"{_keyed(b, s)}.process({name}(){typed})",
        "SLL", typed=is_typed, ordered=False, times=True,
    )  # fmt: skip


def _assigner(b: Builder) -> str:
    name = b.rng.choice([
        "TumblingEventTimeWindows",
        "SlidingEventTimeWindows",
        "EventTimeSessionWindows",
    ])
    b.features.add(name)
    size = b.rng.choice([5, 10, 37])
    if name == "TumblingEventTimeWindows":
        return f"{name}.of(Time.milliseconds({size}))"
    if name == "SlidingEventTimeWindows":
        return (
            f"{name}.of(Time.milliseconds({size}), Time.milliseconds({b.rng.choice([5, 7, 10])}))"
        )
    return f"{name}.with_gap(Time.milliseconds({size}))"


_AGGREGATE = (
    "class NAME(AggregateFunction):\n"
    "    def create_accumulator(self):\n        return (0, 0)\n"
    "    def add(self, value, acc):\n        return (acc[0] + 1, acc[1] + value[1])\n"
    "    def get_result(self, acc):\n        return (str(acc[0]), acc[1])\n"
    "    def merge(self, a, b):\n        return (a[0] + b[0], a[1] + b[1])\n"
)
_PROCESS_WINDOW = (
    "class NAME(ProcessWindowFunction):\n"
    "    def process(self, key, context, elements):\n"
    "        w = context.window()\n"
    "        yield (str(key), w.start, w.end, len(list(elements)))\n"
)
_ADDS_ALL = (
    "class NAME(ProcessWindowFunction):\n"
    "    def process(self, key, context, elements):\n"
    "        one = FUNCTION()\n"
    "        acc = one.create_accumulator()\n"
    "        for element in elements:\n            acc = one.add(element, acc)\n"
    "        yield one.get_result(acc)\n"
)
_WINDOW_FUNCTION = (
    "class NAME(WindowFunction):\n"
    "    def apply(self, key, window, inputs):\n"
    "        return [(str(key), window.start, sorted(x[1] for x in inputs)[-1])]\n"
)


def _window(b: Builder, s: Stream) -> Stream:
    """Results depend on which records a window has, not on their order."""
    if not b.has_timers:
        return _process(b, s)
    if not s.has_times:
        s = _with_times(b, s)
    assigner = _assigner(b)
    windows = f"{_keyed(b, s)}.window({assigner})"
    if b.rng.random() < 0.2:
        b.features.add("allowed_lateness")
        windows += ".allowed_lateness(20)"
    kind = b.rng.choice(["aggregate", "process", "apply"])
    text = {"aggregate": _AGGREGATE, "process": _PROCESS_WINDOW, "apply": _WINDOW_FUNCTION}[kind]
    fields = {"aggregate": "SL", "process": "SLLL", "apply": "SLL"}[kind]
    name = b.cls(text)
    if kind == "aggregate" and "Session" in assigner:
        _without_merges(b, name)
    typed, is_typed = b.declared(fields)
    output = typed.replace(", ", ", output_type=", 1)
    return b.add(
        f"{windows}.{kind}({name}(){output})", fields, typed=is_typed, ordered=False, times=True
    )


def _without_merges(b: Builder, function: str) -> None:
    """Sessions of this AggregateFunction may be had by one that adds all records of a window, too."""
    name = f"{function}All"
    b.classes.append(_ADDS_ALL.replace("NAME", name).replace("FUNCTION", function))
    b.merges[f".aggregate({function}("] = f".process({name}("


def _count_window(b: Builder, s: Stream) -> Stream:
    if not (s.is_ordered and b.has_order):
        return _window(b, s)
    b.features.add("count_window")
    slide = b.rng.choice(["", ", 1", ", 2"])
    name = b.cls(_AGGREGATE)
    typed, is_typed = b.declared("SL")
    output = typed.replace(", ", ", output_type=", 1)
    return b.add(
        f"{_keyed(b, s)}.count_window({b.rng.choice([2, 3])}{slide}).aggregate({name}(){output})",
        "SL", typed=is_typed, ordered=False, times=s.has_times,
    )  # fmt: skip


def _window_all(b: Builder, s: Stream) -> Stream:
    if not b.has_timers:
        return _process(b, s)
    if not s.has_times:
        s = _with_times(b, s)
    b.features.add("window_all")
    name = b.cls(
        "class NAME(ProcessAllWindowFunction):\n"
        "    def process(self, context, elements):\n"
        "        times = sorted(x[1] for x in elements)\n"
        "        yield ('all', times[0], len(times))\n"
    )
    typed, is_typed = b.declared("SLL")
    output = typed.replace(", ", ", output_type=", 1)
    return b.add(
        f"{s.name}.window_all({_assigner(b)}).process({name}(){output})",
        "SLL", typed=is_typed, ordered=False, times=True,
    )  # fmt: skip


def _connect_keyed(b: Builder, s: Stream) -> Stream:
    """Both sides share a sum, which is read when a timer fires at the end."""
    if not b.has_timers:
        return _connect(b, s)
    if not s.has_times:
        s = _with_times(b, s)
    other = _filter(b, s)
    name = b.cls(
        "class NAME(KeyedCoProcessFunction):\n"
        "    def open(self, ctx):\n"
        "        self.n = ctx.get_state(ValueStateDescriptor('n', Types.LONG()))\n"
        "    def add(self, by, ctx):\n"
        "        self.n.update((self.n.value() or 0) + by)\n"
        "        ctx.timer_service().register_event_time_timer(10 ** 9)\n"
        "        return []\n"
        "    def process_element1(self, value, ctx):\n        return self.add(1, ctx)\n"
        "    def process_element2(self, value, ctx):\n        return self.add(100, ctx)\n"
        "    def on_timer(self, timestamp, ctx):\n"
        "        yield (ctx.get_current_key(), timestamp, self.n.value())\n"
    )
    typed, is_typed = b.declared("SLL")
    return b.add(
        f"{s.name}.connect({other.name}).key_by(lambda x: x[0], lambda x: x[0])"
        f".process({name}(){typed})",
        "SLL", typed=is_typed, ordered=False, times=True,
    )  # fmt: skip


_STEPS: list[Callable[[Builder, Stream], Stream]] = [
    _map, _filter, _flat_map, _process, _union, _connect, _rolling, _rolling, _stateful, _timers,
    _window, _window, _count_window, _window_all, _connect_keyed,
]  # fmt: skip
