"""How long a database may take for one answer: the deadline of each call into its driver, whatever driver it is.

Some drivers have timeouts of their own for some of their calls, which differ in name and meaning, and psycopg has none
for reading. So none is relied on. Long work that gets answers on its way, such as a commit of many rows, may take any time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from penstock.engine.hosting.os.clock import each_within, within
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.time import millis_of

TIMEOUT_S: Final = 120.0
"""More than SQLite's writers wait for each other."""
QUERY_TIMEOUT_S: Final = 600.0
"""Of sources, whose queries may sort a table before the first row comes."""
_MORE: Final = " {} allows more time for one answer."

T = TypeVar("T")


def checked_timeout(setter: str, timeout: object) -> float:
    """Seconds of a Duration or timedelta. Raises: ConfigurationError: it is no time. TypeError: it has no unit."""
    seconds = millis_of(timeout) / 1000
    if seconds <= 0:
        raise ConfigurationError(f"{setter}: expected 1 ms or more, got {timeout!r}.")
    return seconds


def answered(limit_s: float, call: Callable[[], T], what: str, setter: str = "set_timeout") -> T:
    """Returns what the call returns. `what`: who cannot do what. Raises: NoAnswer: an answer takes longer than `limit_s`."""
    return within(limit_s, call, what, _MORE.format(setter))


def each_answered(limit_s: float, values: Generator[T], what: str) -> Generator[T]:
    """Yields what the generator yields, of which each value is one answer. Raises: as `answered`."""
    return each_within(limit_s, values, what, _MORE.format("set_timeout"))
