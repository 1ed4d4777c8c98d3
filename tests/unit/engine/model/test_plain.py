"""Settings as plain data: what goes in comes out, and data that does not fit is refused with its place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from enum import Enum, StrEnum
from types import NoneType, UnionType
from typing import Any, NamedTuple, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.hosting.network.wire.addresses import Addresses
from penstock.engine.hosting.reporting.logs.settings import LogSettings
from penstock.engine.hosting.reporting.metrics.taskmanager import MetricSettings
from penstock.engine.hosting.shipping.worker_files import WorkerFiles
from penstock.engine.hosting.taskmanager_order import (
    ChildOrder,
    StepSettings,
    TaskManagerOrder,
    TaskSettings,
    WatchSettings,
    WorkerOrder,
)
from penstock.engine.model.checkpoints import TaskCheckpointing
from penstock.engine.model.deployment import SparkTask
from penstock.engine.model.plain import NotPlain, from_plain, to_plain
from penstock.engine.runtime.network.network_settings import (
    BlockingSettings,
    DebloatSettings,
    NetworkSettings,
)
from penstock.engine.runtime.state.settings import StateBackendSettings
from penstock.engine.runtime.task.latency import Granularity, LatencySettings

SCALARS = {
    str: st.text(max_size=5),
    int: st.integers(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bytes: st.binary(max_size=5),
    NoneType: st.none(),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of this type."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, NewType):
        return values(hint.__supertype__)
    if origin in {Union, UnionType}:
        return st.one_of([values(one) for one in inner])
    if origin is tuple and inner[-1] is ...:
        return st.lists(values(inner[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, inner))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return st.builds(hint, **{name: values(one) for name, one in get_type_hints(hint).items()})
    return SCALARS[hint]


def parts(hint: Any, found: set[type]) -> set[type]:
    """The classes with fields of their own that are in it."""
    if is_dataclass(hint):
        found.add(hint)
        for one in get_type_hints(hint).values():
            parts(one, found)
    for one in get_args(hint):
        parts(one, found)
    return found


SETTINGS = sorted(parts(WorkerOrder, parts(ChildOrder, set())), key=lambda cls: cls.__name__)


def through_json(value: object) -> Any:
    return from_plain(type(value), json.loads(json.dumps(to_plain(value))))


def test_every_class_of_settings_that_a_taskmanager_gets_is_tried() -> None:
    assert set(SETTINGS) == {
        ChildOrder, TaskManagerOrder, WorkerOrder, Addresses, TaskSettings,
        StepSettings,
        TaskCheckpointing, NetworkSettings, DebloatSettings, BlockingSettings, StateBackendSettings,
        WatchSettings, LogSettings, MetricSettings, LatencySettings, SparkTask,
    }  # fmt: skip


@pytest.mark.parametrize("cls", SETTINGS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_settings_come_out_as_they_went_in(cls: type, data: st.DataObject) -> None:
    told = data.draw(values(cls))
    found = through_json(told)
    assert found == told
    assert repr(found) == repr(told)  # an enum equals its text, a tuple of floats one of ints


@pytest.mark.parametrize("cls", SETTINGS, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_a_field_that_is_missing_or_unknown_is_named(cls: type, data: st.DataObject) -> None:
    plain = to_plain(data.draw(values(cls)))
    lost = data.draw(st.sampled_from(sorted(plain)))
    with pytest.raises(NotPlain, match=rf"missing: {lost}\b"):
        from_plain(cls, {name: item for name, item in plain.items() if name != lost})
    with pytest.raises(NotPlain, match=r"unknown: not_there\b"):
        from_plain(cls, {**plain, "not_there": 1})


def test_an_enum_is_the_same_member_again() -> None:
    told = TaskSettings(metrics=MetricSettings(latency=LatencySettings(Granularity.SUBTASK)))
    assert through_json(told).metrics.latency.granularity is Granularity.SUBTASK


def test_a_named_tuple_keeps_its_class() -> None:
    files = WorkerFiles((("name", "target"),), ("path",))
    assert type(through_json(files)) is WorkerFiles


def test_a_wrong_value_is_refused_with_its_place() -> None:
    plain = to_plain(TaskSettings())
    plain["network"]["debloat"]["samples"] = "many"
    with pytest.raises(
        NotPlain, match=r"TaskSettings\.network\.debloat\.samples is 'many', expected int"
    ):
        from_plain(TaskSettings, plain)


class Colour(StrEnum):
    RED = "red"


class Pair(NamedTuple):
    first: int
    second: bytes


@dataclass(frozen=True)
class Several:
    colour: Colour
    pair: Pair
    amounts: Mapping[str, float]
    names: list[str]


SEVERAL = Several(Colour.RED, Pair(1, b"\x00"), {"a": 1.5}, ["x"])


def test_mappings_and_lists_come_through() -> None:
    assert through_json(SEVERAL) == SEVERAL


@pytest.mark.parametrize(
    ("name", "wrong", "expected"),
    [
        ("colour", "blue", r"Several\.colour is 'blue', expected one of 'red'"),
        ("pair", [1], r"Several\.pair is \[1\], expected 2 items"),
        ("pair", [True, "00"], r"Several\.pair\[0\] is True, expected int"),
        ("pair", [1, "xy"], r"Several\.pair\[1\] is 'xy', expected bytes as hexadecimal digits"),
        ("amounts", [], r"Several\.amounts is \[\], expected dict"),
        ("amounts", {"a": None}, r"Several\.amounts\['a'\] is None, expected int or float"),
        ("names", "x", r"Several\.names is 'x', expected list or tuple"),
    ],
)
def test_data_of_another_shape_is_refused(name: str, wrong: object, expected: str) -> None:
    with pytest.raises(NotPlain, match=expected):
        from_plain(Several, {**to_plain(SEVERAL), name: wrong})


@pytest.mark.parametrize("value", [{1: "x"}, {"x"}, object()])
def test_what_json_cannot_carry_is_refused(value: object) -> None:
    with pytest.raises(NotPlain, match="cannot become plain data"):
        to_plain(value)


@pytest.mark.parametrize("hint", [dict[int, str], int | str, set[int], object])
def test_a_type_that_cannot_be_read_again_is_refused(hint: Any) -> None:
    with pytest.raises(NotPlain, match="cannot be read from plain data"):
        from_plain(hint, {})
