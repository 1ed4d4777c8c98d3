"""The examples give what they say."""

import runpy
from pathlib import Path

import pytest

from penstock.common import Row
from penstock.testing import CollectingSink, MiniCluster
from tests.tools.programs.environments import minicluster_environment

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def env():
    return minicluster_environment(MiniCluster()).set_parallelism(2)


def example(name):
    """Its names; nothing of it runs by that."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)


def results(env, stream):
    sink = CollectingSink()
    stream.sink_to(sink)
    env.execute()
    return sink.values


def test_quiet_machines_are_told_of(env):
    found = results(env, example("event_time_timer")["alarms"](env))
    assert sorted(found) == [
        "lathe is quiet since 8000",
        "press is quiet since 18000",
    ]


def test_readings_are_smoothed(env):
    found = results(env, example("state_access")["smoothed"](env))
    assert [row for row in found if row.sensor == "attic"] == [
        Row(sensor="attic", average=20.0, largest=20.0),
        Row(sensor="attic", average=21.0, largest=22.0),
        Row(sensor="attic", average=23.0, largest=27.0),
        Row(sensor="attic", average=26.0, largest=29.0),
    ]
    assert [tuple(row) for row in found if row.sensor == "cellar"] == [
        ("cellar", 12.0, 12.0),
        ("cellar", 11.5, 12.0),
    ]


def test_sales_by_windows_and_sessions(env):
    names = example("windows")
    tens, late = names["sales"](names["visits"](env))
    too_late = CollectingSink()
    late.sink_to(too_late)
    assert sorted(results(env, tens)) == [
        ("ann", 0, 10_000, 500),
        ("ann", 30_000, 40_000, 100),
        ("bob", 0, 10_000, 500),
        ("bob", 30_000, 40_000, 700),
    ]
    assert too_late.values == []
    sessions = results(env, names["sessions"](names["visits"](env)))
    assert sorted(sessions) == [
        ("ann", 1_000, 23_000, 500),
        ("ann", 31_000, 46_000, 100),
        ("bob", 4_000, 19_000, 500),
        ("bob", 33_000, 48_000, 700),
    ]


def test_json_lines_are_read_and_written(env):
    found = results(env, example("process_json")["people"](env))
    assert sorted(found) == ['{"name":"Flink","tel":"+49 123456"}', '{"name":"World","tel":null}']


def test_rules_reach_all_payments(env):
    found = results(env, example("broadcast_rules")["violations"](env))
    assert sorted(found) == ["ann: 40 for food, 30 allowed", "bob: 90 for fuel, 80 allowed"]


def test_orders_are_joined_with_the_clicks_before_them(env):
    found = results(env, example("interval_join")["led"](env))
    assert sorted(found) == [
        "ann: blue banner -> socks after 1000 ms",
        "ann: red banner -> shoes after 6000 ms",
    ]


def test_orders_get_their_prices_in_order(env):
    found = results(env.set_parallelism(1), example("async_enrichment")["priced"](env))
    assert found == [("apple", 90), ("plum", 200), ("pear", 45), ("apple", 30)]


def test_prices_by_columns(env):
    found = results(env, example("columns")["prices"](env))
    assert sorted(map(tuple, found)) == [
        ("lamp", 0, 10_000, 2, 20.0),
        ("lamp", 10_000, 20_000, 1, 50.0),
        ("vase", 10_000, 20_000, 1, 90.0),
    ]
