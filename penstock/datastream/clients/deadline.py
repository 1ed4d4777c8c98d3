"""A deadline for calls into client libraries that keep none, or not always the one they were given.

A call cannot be ended from outside. So it runs on a thread of its own, and whoever waits for it leaves at the deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.model.errors import ExternalError

T = TypeVar("T")


class NoAnswer(ExternalError):
    """A call has not returned in time. It may still be at work: its client must not be used again."""


def within(limit_s: float, call: Callable[[], T], what: str) -> T:
    """Returns what the call returns, and raises what it raises.

    `what`: begins the error: who cannot do what. Raises: NoAnswer: the call has not returned within `limit_s`.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    thread = threading.Thread(
        target=_run, args=(call, results, errors), name="penstock-client-call", daemon=True
    )
    del call  # what it refers to ends with it, also while the error is kept
    thread.start()
    thread.join(limit_s)
    if thread.is_alive():
        raise NoAnswer(f"{what}: the client has not answered within {limit_s:g} s.")
    if errors:
        raise errors.pop()
    return results.pop()


def _run(call: Callable[[], Any], results: list[Any], errors: list[BaseException]) -> None:
    try:
        results.append(call())
    except BaseException as error:  # Whatever it is, who waits gets it.
        errors.append(error)
    finally:
        del call
