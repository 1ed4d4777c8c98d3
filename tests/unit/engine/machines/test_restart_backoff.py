"""Whether and when to restart, by docs/spec/failover.md#back-off."""

import pytest

from penstock.engine.machines.failover import (
    CheckpointedRestart,
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    InfrastructureOnlyRestart,
    NoRestart,
    is_infrastructure,
    restart_backoff_of,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.messages import FailureInfo

LOST = FailureInfo("TaskManagerLost", "gone")
USER = FailureInfo("ValueError", "boom", is_user_code=True)
MEMORY = FailureInfo("OutOfMemory", "killed")


def test_fixed_delay_counts_failures() -> None:
    backoff = FixedDelayRestart(attempts=2, delay=7)
    answers = []
    for now_ms in range(3):
        backoff.notify(now_ms)
        answers.append(backoff.can_restart())
    assert answers == [True, True, False]
    assert backoff.delay_ms(0) == 7


def test_failure_rate_forgets_what_is_older_than_the_interval() -> None:
    backoff = FailureRateRestart(max_per_interval=1, interval_ms=60_000)
    answers = []
    for now_ms in (0, 30_000, 120_000):
        backoff.notify(now_ms)
        answers.append(backoff.can_restart())
    assert answers == [True, False, True]


def test_exponential_delay_merges_grows_and_resets() -> None:
    backoff = ExponentialDelayRestart(jitter=0.0, reset_threshold_ms=10_000, max_ms=2000)
    assert backoff.notify(0)
    assert not backoff.notify(1000)
    assert backoff.delay_ms(400) == 600
    assert backoff.notify(1001)
    assert backoff.delay_ms(1001) == 1500
    assert backoff.notify(3000)
    assert backoff.delay_ms(3000) == 2000
    assert backoff.notify(15_000)
    assert backoff.delay_ms(15_000) == 1000


def test_exponential_delay_ends_after_its_attempts_and_adds_the_drawn_jitter() -> None:
    backoff = ExponentialDelayRestart(attempts_before_reset=1, jitter=0.5, draw=lambda: 1.0)
    backoff.notify(0)
    assert backoff.can_restart()
    assert backoff.delay_ms(0) == 1500
    backoff.notify(5000)
    assert not backoff.can_restart()


def test_exponential_delay_survives_thousands_of_failures() -> None:
    backoff = ExponentialDelayRestart()
    for attempt in range(5000):
        backoff.notify(attempt * 100_000)
    assert backoff.delay_ms(4999 * 100_000) == 60_000


@pytest.mark.parametrize("multiplier", [1.01, 2.0, 16.0, 1e300])
def test_exponential_delay_grows_to_its_maximum_with_any_multiplier(multiplier: float) -> None:
    """Each wait is the one before times the multiplier, until the maximum (docs/spec/failover.md#back-off)."""
    backoff = ExponentialDelayRestart(
        initial_ms=1000, max_ms=60_000, multiplier=multiplier, jitter=0.0
    )
    now, expected = 0, 1000.0
    for _ in range(1500):
        backoff.notify(now)
        assert backoff.delay_ms(now) == pytest.approx(expected, abs=1)
        now += backoff.delay_ms(now) + 1
        expected = min(expected * multiplier, 60_000.0)


def test_by_default_only_infrastructure_restarts_but_without_limit() -> None:
    backoff = InfrastructureOnlyRestart()
    for _ in range(1000):
        backoff.notify(0, LOST)
        assert backoff.can_restart()
    backoff.notify(0, USER)
    assert not backoff.can_restart()


@pytest.mark.parametrize(
    "kind", ["TaskManagerLost", "PartitionConnectionError", "PartitionNotFound"]
)
def test_broken_connections_count_as_infrastructure_unless_user_code_raised_them(kind: str) -> None:
    assert is_infrastructure(FailureInfo(kind, ""))
    assert not is_infrastructure(FailureInfo(kind, "", is_user_code=True))
    assert not is_infrastructure(None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, InfrastructureOnlyRestart),
        ("none", NoRestart),
        ("fixed-delay", FixedDelayRestart),
        ("failure-rate", FailureRateRestart),
        ("exponential-delay", ExponentialDelayRestart),
    ],
)
def test_the_settings_choose_the_strategy(name: str | None, expected: type) -> None:
    program = {} if name is None else {"restart-strategy.type": name}
    assert type(restart_backoff_of(Settings(program))) is expected


@pytest.mark.parametrize(
    "program",
    [
        {"restart-strategy.type": "sometimes"},
        {"restart-strategy.type": "exponential-delay",
         "restart-strategy.exponential-delay.backoff-multiplier": "1.0"},
        {"restart-strategy.type": "exponential-delay",
         "restart-strategy.exponential-delay.initial-backoff": "2 min"},
        {"restart-strategy.type": "failure-rate",
         "restart-strategy.failure-rate.max-failures-per-interval": "0"},
        {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "-1"},
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused_with_their_key(program: dict) -> None:
    with pytest.raises(ConfigurationError, match="restart-strategy"):
        restart_backoff_of(Settings(program))


def test_with_checkpoints_waits_grow_but_lost_machines_are_replaced_at_once() -> None:
    settings = Settings({"execution.checkpointing.interval": "1 s"})
    backoff = restart_backoff_of(settings)
    assert isinstance(backoff, CheckpointedRestart)
    delays = []
    for now_ms, failure in ((0, USER), (2000, LOST), (2001, LOST), (10_000, USER)):
        assert backoff.notify(now_ms, failure)
        assert backoff.can_restart()
        delays.append(backoff.delay_ms(now_ms))
    assert delays == [1000, 100, 100, 1500]


@pytest.mark.parametrize("interval", [{}, {"execution.checkpointing.interval": "1 s"}])
def test_kills_for_memory_restart_as_the_growing_waits_allow(interval: dict) -> None:
    """Whatever runs meanwhile, and checkpoints too: only an hour without a kill makes the wait short again."""
    attempts = "restart-strategy.exponential-delay.attempts-before-reset-backoff"
    backoff = restart_backoff_of(Settings({**interval, attempts: "4"}))
    answers = []
    for now_ms, failure in enumerate([MEMORY, MEMORY, LOST, MEMORY, MEMORY, MEMORY]):
        backoff.notify(now_ms * 60_000, failure)
        answers.append(backoff.delay_ms(now_ms * 60_000) if backoff.can_restart() else None)
    assert answers == [1000, 1500, 100, 2250, 3375, None]


def test_a_strategy_that_is_set_counts_with_checkpoints_too() -> None:
    settings = Settings({
        "execution.checkpointing.interval": "1 s",
        "restart-strategy.type": "none",
    })
    assert isinstance(restart_backoff_of(settings), NoRestart)
