"""Waiting for what tells nobody when it comes: one looks again and again, and lets others run in between."""

import time

PATIENCE_S = 30
_PAUSE_S = 0.002


def wait_until(is_so, otherwise: str, patience_s: float = PATIENCE_S):
    """Returns: the first answer of `is_so` that is true. Raises: AssertionError: there is none, with the text `otherwise`."""
    deadline = time.monotonic() + patience_s
    while not (answer := is_so()):
        assert time.monotonic() < deadline, otherwise
        time.sleep(_PAUSE_S)
    return answer
