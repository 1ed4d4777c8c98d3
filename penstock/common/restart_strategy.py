"""Restart strategies as objects, which become configuration keys. Does not know any job.

Source: pyflink.common.restart_strategy. Delays and intervals are milliseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from penstock.common.configuration import Configuration
from penstock.engine.model.options.scheduling import RestartOptions
from penstock.engine.model.setting_checks import check_kind, check_whole


class RestartStrategyConfiguration(ABC):
    """Sets when a failed job is restarted."""

    @abstractmethod
    def get_description(self) -> str:
        """Return the strategy in words."""

    @abstractmethod
    def to_options(self) -> dict[str, str]:
        """Return the strategy as configuration keys; empty: the cluster's default."""


@dataclass(frozen=True, slots=True)
class _NoRestart(RestartStrategyConfiguration):
    def get_description(self) -> str:
        return "Restart deactivated."

    def to_options(self) -> dict[str, str]:
        return {RestartOptions.TYPE.key: "disable"}


@dataclass(frozen=True, slots=True)
class _Fallback(RestartStrategyConfiguration):
    def get_description(self) -> str:
        return "Cluster level default restart strategy"

    def to_options(self) -> dict[str, str]:
        return {}


@dataclass(frozen=True, slots=True)
class _FixedDelay(RestartStrategyConfiguration):
    restart_attempts: int
    delay_between_attempts_interval: timedelta

    def get_restart_attempts(self) -> int:
        return self.restart_attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        return self.delay_between_attempts_interval

    def get_description(self) -> str:
        return (
            f"Restart with fixed delay ({_ms(self.delay_between_attempts_interval)} ms). "
            f"#{self.restart_attempts} restart attempts."
        )

    def to_options(self) -> dict[str, str]:
        return {
            RestartOptions.TYPE.key: "fixed-delay",
            RestartOptions.FIXED_DELAY_ATTEMPTS.key: str(self.restart_attempts),
            RestartOptions.FIXED_DELAY.key: f"{_ms(self.delay_between_attempts_interval)} ms",
        }


@dataclass(frozen=True, slots=True)
class _FailureRate(RestartStrategyConfiguration):
    max_failure_rate: int
    failure_interval: timedelta
    delay_between_attempts_interval: timedelta

    def get_max_failure_rate(self) -> int:
        return self.max_failure_rate

    def get_failure_interval(self) -> timedelta:
        return self.failure_interval

    def get_delay_between_attempts_interval(self) -> timedelta:
        return self.delay_between_attempts_interval

    def get_description(self) -> str:
        return (
            f"Failure rate restart with maximum of {self.max_failure_rate} failures within "
            f"interval {_ms(self.failure_interval)} ms and fixed delay "
            f"{_ms(self.delay_between_attempts_interval)} ms."
        )

    def to_options(self) -> dict[str, str]:
        return {
            RestartOptions.TYPE.key: "failure-rate",
            RestartOptions.FAILURE_RATE_MAX_FAILURES.key: str(self.max_failure_rate),
            RestartOptions.FAILURE_RATE_INTERVAL.key: f"{_ms(self.failure_interval)} ms",
            RestartOptions.FAILURE_RATE_DELAY.key: f"{_ms(self.delay_between_attempts_interval)} ms",
        }


class RestartStrategies:
    """Creates restart strategies."""

    RestartStrategyConfiguration = RestartStrategyConfiguration
    NoRestartStrategyConfiguration = _NoRestart
    FixedDelayRestartStrategyConfiguration = _FixedDelay
    FailureRateRestartStrategyConfiguration = _FailureRate
    FallbackRestartStrategyConfiguration = _Fallback

    @staticmethod
    def no_restart() -> _NoRestart:
        """Let the job fail at its first failure."""
        return _NoRestart()

    @staticmethod
    def fall_back_restart() -> _Fallback:
        """Use the cluster's default strategy."""
        return _Fallback()

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: int) -> _FixedDelay:
        """Restart `restart_attempts` times at most, each `delay_between_attempts` ms later."""
        check_whole("restart_attempts", restart_attempts, 0)
        check_whole("delay_between_attempts", delay_between_attempts, 0, "ms")
        return _FixedDelay(restart_attempts, timedelta(milliseconds=delay_between_attempts))

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int, delay_interval: int
    ) -> _FailureRate:
        """Restart while there are at most `failure_rate` failures in `failure_interval` ms.

        `delay_interval` is the time in ms between a failure and the restart.
        """
        check_whole("failure_rate", failure_rate, 1)
        check_whole("failure_interval", failure_interval, 1, "ms")
        check_whole("delay_interval", delay_interval, 0, "ms")
        return _FailureRate(
            failure_rate,
            timedelta(milliseconds=failure_interval),
            timedelta(milliseconds=delay_interval),
        )


def configure_restarts(
    configuration: Configuration, strategy: RestartStrategyConfiguration
) -> None:
    """Replace the `restart-strategy.*` keys by those of the strategy."""
    check_kind(
        "set_restart_strategy",
        strategy,
        RestartStrategyConfiguration,
        "RestartStrategies.fixed_delay_restart(3, 1000)",
    )
    for key in configuration.key_set():
        if key.startswith(RestartOptions.TYPE.former_keys):
            configuration.remove_config(key)
    for key, value in strategy.to_options().items():
        configuration.set_string(key, value)


def _ms(length: timedelta) -> int:
    return length // timedelta(milliseconds=1)
