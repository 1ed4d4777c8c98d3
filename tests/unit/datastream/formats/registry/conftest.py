"""A schema registry for each test."""

import pytest

from tests.tools.schema_registry import schema_registry


@pytest.fixture
def registry():
    with schema_registry() as server:
        yield server
