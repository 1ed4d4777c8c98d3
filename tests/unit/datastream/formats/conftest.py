"""A schema registry for each test, and Confluent's own client of it."""

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.tools.schema_registry import schema_registry


@pytest.fixture
def registry():
    with schema_registry() as server:
        yield server


@pytest.fixture
def confluent(registry):
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client
