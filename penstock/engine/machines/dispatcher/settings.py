"""How a Dispatcher forgets jobs that have ended, and when it tries a failed clean-up again.

Source: Flink JobManagerOptions (jobstore.*), CleanupOptions (docs/spec/options.md#clean-up-of-ended-jobs).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.cluster import CleanupOptions
from penstock.engine.model.options.rest import WebOptions

_NEVER: Final = frozenset({"none", "disable", "off"})
_FIXED: Final = frozenset({"fixed-delay", "fixeddelay"})
_EXPONENTIAL: Final = frozenset({"exponential-delay", "exponentialdelay"})


@dataclass(frozen=True, slots=True)
class DispatcherSettings:
    """Times in ms. `capacity`: how many ended jobs are kept; None: all. `retries`: how many times a clean-up is tried again; None: until it
    succeeds. `most_initialising`: how many jobs start at once.
    """

    expiration_ms: int = 3_600_000
    capacity: int | None = None
    first_retry_ms: int = 1000
    last_retry_ms: int = 3_600_000
    retries: int | None = None
    most_initialising: int = 4

    def retry_after(self, failures: int) -> int | None:
        """Return the pause after so many failed clean-ups in a row, 1 or more; None: it is not tried again."""
        if self.retries is not None and failures > self.retries:
            return None
        return min(self.last_retry_ms, self.first_retry_ms << min(failures - 1, 40))


def dispatcher_settings_of(settings: Settings) -> DispatcherSettings:
    """Read the options. Raises: ConfigurationError: an unknown strategy, or a number out of its range."""
    strategy = settings.get(CleanupOptions.STRATEGY).lower()
    if strategy in _NEVER:
        first_ms = last_ms = 1
        retries = 0
    elif strategy in _FIXED:
        first_ms = last_ms = settings.get(CleanupOptions.FIXED_DELAY)
        retries = settings.get(CleanupOptions.FIXED_ATTEMPTS)
    elif strategy in _EXPONENTIAL:
        first_ms = settings.get(CleanupOptions.EXPONENTIAL_FIRST)
        last_ms = settings.get(CleanupOptions.EXPONENTIAL_LONGEST)
        retries = settings.get(CleanupOptions.EXPONENTIAL_ATTEMPTS)
    else:
        raise ConfigurationError(
            f"option '{CleanupOptions.STRATEGY.key}' is '{strategy}', but it takes none, "
            "fixed-delay or exponential-delay. Change the setting."
        )
    if min(first_ms, last_ms) < 1 or retries < 0:
        raise ConfigurationError(
            f"the pauses of '{CleanupOptions.STRATEGY.key}.{strategy}' are {first_ms} to "
            f"{last_ms} ms and the attempts {retries}, but pauses must be at least 1 ms and "
            "attempts 0 or more. Change the setting."
        )
    return DispatcherSettings(
        expiration_ms=settings.get(WebOptions.EXPIRATION),
        capacity=settings.get(WebOptions.CAPACITY),
        first_retry_ms=first_ms,
        last_retry_ms=last_ms,
        retries=retries,
    )
