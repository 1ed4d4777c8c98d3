"""Tests with random functions do not fill the machine."""

import resource
from pathlib import Path

import pytest

MOST_BYTES = 2 << 30
"""More than the tests have, and less than a text that is repeated a billion times."""


@pytest.fixture
def little_memory():
    """Repeated texts may be huge: they are to be a MemoryError on both sides, and not to fill the machine."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
