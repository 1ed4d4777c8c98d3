"""Jobs that have one illness each: what `/jobs/:jobid/bottleneck` says of them, with names and since when."""

import contextlib
import json
import time

import pytest

from penstock.common import Types
from tests.tools.hosting.rest import rest_server
from tests.tools.programs.sick_jobs import (
    ONE_EACH,
    RISING,
    environment,
    late_subtask,
    records,
    restarting,
    skewed_key,
    slow_operator,
    stuck_split,
)
from tests.tools.programs.sick_programs import (
    SILENT,
    SLOW,
    STUCK,
    STUCK_AT,
    Flow,
    Gates,
    SlowSink,
    computes,
    computes_while_the_gate_is_closed,
    hot,
    waits,
    waits_for_the_gate,
)
from tests.tools.waiting import wait_until


@pytest.fixture(scope="module")
def client():
    with rest_server() as client:
        yield client


class _Told:
    """The last answer, as a text when somebody wants it."""

    def __init__(self, last) -> None:
        self.last = last

    def __str__(self) -> str:
        return json.dumps(self.last, indent=1)


@contextlib.contextmanager
def running(env, client):
    """What the server says of the job, as a function that waits until `is_so` is true of it. The job is cancelled behind the block."""
    began_ms = time.time_ns() // 1_000_000
    job = env.execute_async("sick job")
    path = f"/jobs/{job.get_job_id()}"
    last = {}

    def until(is_so):
        def look():
            last.update(client.get(f"{path}/bottleneck"))
            return is_so(last)

        wait_until(look, _Told(last))
        return last | {"began": began_ms, "path": path}

    try:
        yield until
    finally:
        job.cancel().result()


def limited_by(name):
    return lambda told: told["limit"] is not None and told["limit"]["vertex-name"] == name


def has_said(words):
    return lambda told: any(words in sentence for sentence in told["sentences"])


def check_limit(told, name, waiting):
    limit = told["limit"]
    assert limit["waiting-vertices"] == [waiting]
    assert told["began"] <= limit["since"] <= told["now"]
    assert told["sentence"].startswith(f"'{name}' limits the job for ")
    assert f"its subtask {limit['subtask']} is busy" in told["sentence"]
    assert told["sentence"].endswith(f"; '{waiting}' waits for it.")
    assert not told["healthy"]


@pytest.mark.parametrize("function", [computes, waits])
def test_a_slow_operator_in_the_middle(client, function):
    with running(slow_operator(function), client) as until:
        told = until(limited_by("slow"))
        check_limit(told, "slow", "Source: records")
        ranked = client.get(f"{told['path']}/metrics/top-n?metric=busyTimeMsPerSecond&n=2")
    assert [one["vertex-name"] for one in ranked["subtasks"]] == ["slow", "slow"]
    assert ranked["total"] == 6


def test_an_operator_that_becomes_slow_and_is_mended(client):
    """The shares are of seconds, so the diagnosis changes with the operator."""
    env = environment()
    flow = records(env, Flow(ONE_EACH, rows=50)).rebalance()
    flow.map(computes_while_the_gate_is_closed).name("slow").filter(lambda _: False).print()
    with running(env, client) as until:
        until(lambda told: told["healthy"])
        Gates.close(SLOW)
        try:
            told = until(lambda told: told["limit"])
        finally:
            Gates.open(SLOW)
        assert told["limit"]["waiting-vertices"] == ["Source: records"]
        assert told["limit"]["vertex-name"].startswith("slow")
        until(lambda told: told["healthy"])


def test_a_slow_sink(client):
    env = environment()
    quick = records(env, Flow(ONE_EACH, floods=True)).map(lambda value: value).name("quick")
    quick.rebalance().sink_to(SlowSink()).name("slow sink")
    with running(env, client) as until:
        told = until(limited_by("Sink: slow sink"))
    check_limit(told, "Sink: slow sink", "Source: records -> quick")


def test_two_slow_operators_in_two_branches_are_both_told(client):
    env = environment()
    for number in range(2):
        fast = records(env, Flow(ONE_EACH, floods=True))
        slow = fast.rebalance().map(computes).name(f"slow {number}")
        slow.rebalance().filter(lambda _: False).name(f"quick {number}").print().name("out")
    with running(env, client) as until:
        told = until(lambda told: told["limit"] and told["further-limits"])
    first, (second,) = told["limit"], told["further-limits"]
    assert {first["vertex-name"], second["vertex-name"]} == {"slow 0", "slow 1"}
    assert told["sentences"][1].startswith(f"'{second['vertex-name']}' limits the job too")


def test_a_source_that_cannot_deliver(client):
    env = environment()
    records(env, Flow(ONE_EACH, pending=700)).rebalance().filter(lambda _: False).print()
    with running(env, client) as until:
        told = until(has_said("cannot deliver"))
    assert told["limit"] is None
    assert told["sentence"].startswith("'Source: records' cannot deliver: it is idle ")
    assert "although 1,400 records wait to be read" in told["sentence"]


def test_a_healthy_job(client):
    env = environment(**{"execution.checkpointing.interval": "100 ms"})
    timed = records(env, Flow(ONE_EACH), RISING)
    timed.key_by(lambda value: value[0]).filter(lambda _: False).print()
    with running(env, client) as until:
        told = until(lambda told: told["healthy"] and told["checkpoint"] and told["watermark"])
    assert told["sentence"].startswith("The job is healthy: ")
    assert told["sentences"] == [told["sentence"]]
    assert not told["watermark"]["held"]


def test_a_skewed_key_for_which_nobody_waits(client):
    with running(skewed_key(), client) as until:
        # On a busy machine somebody does wait for it for a while.
        told = until(lambda told: told["skewed"] and told["healthy"])
    (skew,) = told["skewed"]
    assert skew["vertex-name"].startswith("sum")
    assert skew["factor"] > 2
    assert told["sentences"] == [told["sentence"]]
    assert "is skewed" not in told["sentence"]


def test_a_slow_subtask_with_a_hot_key_limits_the_job(client):
    env = environment()
    keyed = records(env, Flow(ONE_EACH, rows=50, floods=True)).key_by(hot, Types.LONG())
    keyed.map(computes).name("slow").filter(lambda _: False).print()
    with running(env, client) as until:
        told = until(
            lambda told: (
                told["limit"]
                and told["limit"]["only-one-subtask"]
                and told["skewed"]
                and told["skewed"][0]["key"]
            )
        )
    (skew,) = told["skewed"]
    assert skew["subtask"] == told["limit"]["subtask"]
    assert "most others are not, because it gets " in told["sentence"]
    assert (skew["key"], skew["key-share"] > 0.9) == ("0", True)
    assert "% of them with the key 0; " in told["sentence"]


def is_held(holder, *, has_one):
    """By split `c`: others have no watermark either at first. `has_one`: a watermark, after the first record."""
    return holder and holder["split"] == "c" and (holder["behind"] is not None) == has_one


@pytest.mark.parametrize("kind", [SILENT, STUCK])
def test_a_split_that_holds_the_watermark(client, kind):
    with running(stuck_split(kind), client) as until:
        has_one = kind == STUCK
        told = until(lambda told: is_held(told["watermark"], has_one=has_one))
    holder = told["watermark"]
    assert (holder["vertex-name"], holder["subtask"], holder["split"]) == (
        "Source: records",
        1,
        "c",
    )
    assert told["began"] <= holder["since"] <= told["now"]
    (sentence,) = [one for one in told["sentences"] if "watermark" in one]
    assert sentence.startswith("The watermark is held for ")
    assert " by split 'c' of subtask 1 of 'Source: records': it " in sentence
    end = {SILENT: "has no watermark yet.", STUCK: "below the furthest."}[kind]
    assert sentence.endswith(end)


def test_a_channel_that_holds_the_watermark(client):
    """Its subtask gets no records, and watermarks are made behind the source."""
    env = environment()
    first = records(env, Flow(ONE_EACH)).partition_custom(lambda key, _: key, lambda _: 0)
    stamped = first.map(lambda value: value).name("stamp")
    timed = stamped.assign_timestamps_and_watermarks(RISING)
    timed.key_by(lambda value: value[0]).filter(lambda _: False).name("behind").print().name("out")
    with running(env, client) as until:
        told = until(lambda told: told["watermark"] and told["watermark"]["held"])
    holder = told["watermark"]
    assert holder["vertex-name"].startswith("stamp")
    assert (holder["subtask"], holder["split"], holder["lag"]) == (1, None, None)
    channel = f"the channel from subtask 1 of '{holder['vertex-name']}' to '{holder['consumer']}'"
    assert f" by {channel}: it has no watermark yet." in " ".join(told["sentences"])


def test_a_subtask_that_acknowledges_late(client, tmp_path):
    Gates.close("late")
    with running(late_subtask(tmp_path, "late"), client) as until:
        try:
            told = until(lambda told: told["checkpoint"] and told["checkpoint"]["slow"])
        finally:
            Gates.open("late")
        awaited = told["checkpoint"]
        assert (awaited["vertex-name"], awaited["subtask"]) == ("Source: records", 1)
        assert awaited["missing"]
        said = f"Checkpoint {awaited['id']} waits for subtask 1 of 'Source: records'"
        assert said in " ".join(told["sentences"])
        until(lambda told: told["checkpoint"] and not told["checkpoint"]["missing"])


def test_barriers_behind_back_pressure(client, tmp_path):
    env = environment(**{
        "execution.checkpointing.interval": "50 ms",
        "execution.checkpointing.dir": str(tmp_path),
    })
    fast = records(env, Flow(ONE_EACH, floods=True))
    slow = fast.rebalance().map(waits_for_the_gate).name("slow")
    slow.rebalance().filter(lambda _: False).print()
    Gates.close(STUCK_AT)
    with running(env, client) as until:
        try:
            told = until(lambda told: told["checkpoint"] and told["checkpoint"]["slow"])
        finally:
            Gates.open(STUCK_AT)
    awaited = told["checkpoint"]
    assert (awaited["vertex-name"], awaited["missing"]) == ("slow", True)
    assert awaited["reason"] == "back pressure holds its barriers up"
    assert has_said("back pressure holds its barriers up.")(told)


def test_a_subtask_that_restarts_again_and_again(client):
    with running(restarting(), client) as until:
        told = until(lambda told: told["restarts"])
    again = told["restarts"]
    assert (again["vertex-name"], again["subtask"]) == ("divide", 1)
    assert again["count"] >= 3
    assert told["began"] <= again["since"] <= told["now"]
    assert told["sentence"].startswith("Subtask 1 of 'divide' has failed ")
    assert "again and again; the last time with ZeroDivisionError: " in told["sentence"]


def test_a_job_with_too_few_slots(client):
    env = environment(1, None, **{"slotmanager.number-of-slots.max": "1"})
    records(env, Flow(ONE_EACH)).rebalance().filter(lambda _: False).print()
    with running(env, client) as until:
        told = until(lambda told: told["waiting"] and told["waiting"]["reason"])
    waiting = told["waiting"]
    assert (waiting["vertex-name"], waiting["subtask"]) == ("Source: records", 0)
    assert told["began"] <= waiting["since"] <= told["now"]
    assert told["sentence"].startswith("The job waits for slots for ")
    assert "2 are wanted, " in told["sentence"]
