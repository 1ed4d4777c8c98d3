"""Every backend keeps the same state: what a program reads does not depend on it, nor on a restore
in between, from either kind to either, at any parallelism. Source of the law:
docs/spec/state.md#backends (backends differ in where state lies).
"""

import datetime as dt
import tempfile
from contextlib import ExitStack, closing
from decimal import Decimal
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Duration
from penstock.engine.model.row import Row
from penstock.engine.model.types import Types
from penstock.engine.runtime.state.contract import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.engine.runtime.windows import TimeWindow
from tests.tools.runtime.key_values import EAST, Device, Pair, Tcp
from tests.tools.runtime.keyed_backends import GROUPS, Average, Backends, through_bytes

KEYS = [
    1, "1", b"1", True, 1.0, (1, "a"), (1, None), Row(1, "x"), "", "ü\ud800", 2**70, -1, 0.0, -0.0,
    Decimal(5), Decimal("5.00"),
    Device("d", 1.0), Device("d", 2.0), Pair(1, "a"), Tcp(64), Tcp(128), ("eur", Decimal("5.0")),
    ("eur", Decimal(5)),
    dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 13, tzinfo=EAST),
]  # fmt: skip
ENTRIES = [*KEYS, "a", "b", None, (1, 2), float("nan"), (Decimal(5),), (Decimal("5.0"),)]
"""Keys of a map. Those that are equal differ in how they are shown: the first one of them stays, as in a dict."""
NAMESPACES = [None, 1, TimeWindow(0, 10), TimeWindow(0, 5)]
VALUES = st.one_of(st.integers(), st.text(), st.none(), st.tuples(st.integers(), st.text()))
TTL_MS = 10


def descriptors(*, has_ttl: bool):
    made = [
        ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY()),
        ListStateDescriptor("list", Types.PICKLED_BYTE_ARRAY()),
        MapStateDescriptor("map", Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY()),
        ReducingStateDescriptor("reduce", lambda a, b: (a, b), Types.PICKLED_BYTE_ARRAY()),
        AggregatingStateDescriptor("aggregate", Average(), Types.PICKLED_BYTE_ARRAY()),
    ]
    for descriptor in made:
        if has_ttl:
            # What is cleaned up in the background depends on the backend, what is read does not.
            builder = StateTtlConfig.new_builder(Duration.of_millis(TTL_MS))
            descriptor.enable_time_to_live(builder.build())
    return made


OPERATIONS = st.one_of(
    st.tuples(st.just("value"), st.just("update"), VALUES),
    st.tuples(st.just("list"), st.just("add"), VALUES),
    st.tuples(st.just("list"), st.just("add_all"), st.lists(VALUES, max_size=3)),
    st.tuples(st.just("list"), st.just("update"), st.lists(VALUES, max_size=3)),
    st.tuples(st.just("map"), st.just("put"), st.sampled_from(ENTRIES), VALUES),
    st.tuples(st.just("map"), st.just("remove"), st.sampled_from(ENTRIES)),
    st.tuples(st.just("reduce"), st.just("add"), st.integers()),
    st.tuples(st.just("aggregate"), st.just("add"), st.integers()),
    st.tuples(st.sampled_from(["value", "list", "map", "reduce", "aggregate"]), st.just("clear")),
    st.tuples(
        st.sampled_from(["list", "reduce", "aggregate"]),
        st.just("merge_namespaces"),
        st.sampled_from(NAMESPACES[1:]),
        st.just(NAMESPACES[2:]),
    ),
)
STEP = st.tuples(st.sampled_from(KEYS), st.sampled_from(NAMESPACES), st.integers(0, 12), OPERATIONS)


class Program:
    """The same calls on a backend of either kind."""

    def __init__(self, kind: str, directory: Path, *, has_ttl: bool) -> None:
        self.backends = Backends(kind, directory)
        self.has_ttl = has_ttl
        self.start([])

    def start(self, snapshots) -> None:
        """Anew, from what others gave."""
        self.backend = self.backends.new()
        for snapshot in snapshots:
            self.backend.restore(snapshot)
        self.states = {d.name: self.backend.of(d) for d in descriptors(has_ttl=self.has_ttl)}

    def step(self, key, namespace, wait_ms, operation) -> None:
        self.backends.clock[0] += wait_ms
        name, method, *arguments = operation
        self.backend.set_key(key)
        self.backend.namespace = namespace
        if method == "merge_namespaces" and arguments[0] in arguments[1]:
            arguments = [arguments[0], [one for one in arguments[1] if one != arguments[0]]]
        getattr(self.states[name], method)(*arguments)

    def seen(self) -> dict:
        found = {}
        for place, key in enumerate(KEYS):
            for namespace in NAMESPACES:
                self.backend.set_key(key)
                self.backend.namespace = namespace
                states = self.states
                found[place, namespace] = (
                    states["value"].value(),
                    list(states["list"]),
                    sorted(map(repr, states["map"].items())),
                    [states["map"].contains(entry) for entry in ENTRIES],
                    states["reduce"].get(),
                    states["aggregate"].get(),
                )
        return found

    def snapshot(self, groups=(0, GROUPS - 1)):
        return through_bytes(self.backend.snapshot(), groups)


@settings(max_examples=60)
@given(st.lists(STEP, max_size=25), st.lists(STEP, max_size=15), st.booleans())
def test_backends_cannot_be_told_apart(before, after, has_ttl):
    with ExitStack() as stack:
        programs = []
        for kind in ("heap", "rocks"):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            programs.append(Program(kind, directory, has_ttl=has_ttl))
            stack.enter_context(closing(programs[-1].backends))
        heap, rocks = programs
        for step in before:
            heap.step(*step)
            rocks.step(*step)
        from_heap, from_rocks = heap.snapshot(), rocks.snapshot()
        assert heap.seen() == rocks.seen()
        rocks.start([from_heap])
        heap.start([from_rocks])
        for step in after:
            heap.step(*step)
            rocks.step(*step)
        assert heap.seen() == rocks.seen()
