"""A program with keyed state of every kind, and what it must have kept."""

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.time import Time
from penstock.datastream import KeyedProcessFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from tests.tools.programs.checkpoint_programs import HeldSource, file_sink
from tests.tools.programs.user_functions import first_of

SPLITS, HELD_AT = 3, 5


class Remember(KeyedProcessFunction):
    """For each split: the last number, all numbers, a map, a Row, one with time to live, one of a class of its own."""

    def open(self, context):
        lasting = StateTtlConfig.new_builder(Time.days(1)).build()
        kept = ValueStateDescriptor("kept", Types.LONG())
        kept.enable_time_to_live(lasting)
        listed = ListStateDescriptor("kept list", Types.LONG())
        listed.enable_time_to_live(lasting)
        mapped = MapStateDescriptor("kept map", Types.LONG(), Types.LONG())
        mapped.enable_time_to_live(lasting)
        self.last = context.get_state(ValueStateDescriptor("last", Types.LONG()))
        self.all = context.get_list_state(ListStateDescriptor("all", Types.LONG()))
        self.halves = context.get_map_state(
            MapStateDescriptor("halves", Types.LONG(), Types.LONG())
        )
        self.row = context.get_state(ValueStateDescriptor("row", Types.PICKLED_BYTE_ARRAY()))
        self.kept = context.get_state(kept)
        self.listed = context.get_list_state(listed)
        self.mapped = context.get_map_state(mapped)
        self.mixed = context.get_state(ValueStateDescriptor("mixed", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value, ctx):
        split, number = value
        self.last.update(number)
        self.all.add(number)
        self.halves.put(number, number // 2)
        self.row.update(Row(number=number, text=str(number)))
        self.kept.update(number)
        self.listed.add(number)
        self.mapped.put(number, 0)
        self.mixed.update({1} if split else "text")
        yield value


def remembering(env, stage, out):
    """Runs until every split is at its fifth number. Returns: the job's client."""
    source = HeldSource(stage.name, splits=SPLITS, count=HELD_AT + 1, hold=HELD_AT)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "held").uid("held")
    seen = stream.key_by(first_of).process(Remember()).uid("remember")
    seen.filter(lambda value: False).sink_to(file_sink(out))
    client = env.execute_async(stage.name)
    stage.wait_until_held(SPLITS)
    return client


REMEMBERED = [
    ("last", 4),
    ("all", [0, 1, 2, 3, 4]),
    ("halves", {0: 0, 1: 0, 2: 1, 3: 1, 4: 2}),
    ("row", Row(number=4, text="4")),
    ("kept", 4),
    ("kept list", [0, 1, 2, 3, 4]),
    ("kept map", dict.fromkeys(range(5), 0)),
]
"""What each key's states are when the splits are held."""


def by_key(rows):
    assert set(rows.namespaces) == {None}
    return dict(zip(rows.keys, rows.values, strict=True))
