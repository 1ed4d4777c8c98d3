"""What a job is, as its graph and its settings say."""

import pytest

from penstock.engine.model.config import Settings
from penstock.engine.model.program import ProgramSettings
from penstock.ops.jobs.snapshots import RestartFacts
from penstock.ops.registry.facts import facts_of
from tests.tools.machines.job_graphs import word_count


def facts(**settings):
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return facts_of(word_count(), Settings(given), ProgramSettings(), None)


def restarts(kind, **more):
    return facts(**{"restart-strategy.type": kind}, **more).restarts


def test_a_restart_strategy_with_its_limit():
    fixed = {"restart-strategy.fixed-delay.attempts": "4"}
    assert restarts("fixed-delay", **fixed) == RestartFacts("fixed-delay", 4)
    assert restarts("none") == RestartFacts("none", 0)
    rate = {
        "restart-strategy.failure-rate.max-failures-per-interval": "3",
        "restart-strategy.failure-rate.failure-rate-interval": "2 min",
    }
    assert restarts("failure-rate", **rate) == RestartFacts("failure-rate", 3, 120_000)


@pytest.mark.parametrize("kind", ["fixed-delay", "exponential-delay"])
def test_a_restart_strategy_without_a_limit(kind):
    more = {"restart-strategy.fixed-delay.attempts": "infinite"}
    assert restarts(kind, **more) == RestartFacts(kind)


def test_the_strategy_of_the_cluster():
    assert facts().restarts == RestartFacts("Cluster level default restart strategy")


def test_a_taskmanager_is_late_when_heartbeats_are_missing():
    assert facts(heartbeat__interval="10 s", heartbeat__timeout="50 s").late_after_ms == 30_000
    assert facts(heartbeat__interval="1 s", heartbeat__timeout="50 s").late_after_ms == 25_000


def test_who_set_an_option_and_what_the_host_would():
    settings = Settings(
        {"parallelism.default": "3"},
        {"slot.idle.timeout": "1 s"},
        {"spark.penstock.heartbeat.timeout": "9 s"},
        {"heartbeat.interval": "500 ms", "parallelism.default": "8"},
    )
    told = facts_of(word_count(), settings, ProgramSettings(), None).options
    assert told.origins == {
        "parallelism.default": "program",
        "slot.idle.timeout": "-D",
        "heartbeat.timeout": "spark",
        "heartbeat.interval": "default",
    }
    assert told.host_defaults == {"heartbeat.interval": "500 ms", "parallelism.default": "8"}
