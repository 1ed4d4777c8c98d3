"""For all tests: how long an example takes says nothing of it, and how many there are is the run's affair."""

import os
import signal
import sys

import pytest
from hypothesis import settings

from penstock.model.errors import CancelSignal

pytest_plugins = ["tests.spark.sessions"]

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "50"))
"""Of each law that does not say so itself. New ones in every run."""

settings.register_profile("penstock", deadline=None, max_examples=EXAMPLES)
settings.load_profile("penstock")


@pytest.hookimpl(trylast=True)
def pytest_configure():
    """What tests make is not for their group: nothing is restored from where others may write.

    A cancel interrupts a task's thread wherever it is. In a finalizer, or in a callback of the collector, Python can only report
    it; the watchdog interrupts again. A shell starts what runs in its background deaf to Ctrl-C, and so would be the programs that
    tests interrupt.
    """
    os.umask(0o022)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    former = sys.unraisablehook

    def report(unraisable):
        if not isinstance(unraisable.exc_value, CancelSignal):
            former(unraisable)

    sys.unraisablehook = report
