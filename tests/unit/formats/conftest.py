"""A schema registry for each test, and Confluent's own client of it; JSON with msgspec and without it."""

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

from penstock.formats import json_columns as records
from tests.tools.schema_registry import schema_registry


@pytest.fixture
def registry():
    with schema_registry() as server:
        yield server


@pytest.fixture
def confluent(registry):
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


PARSERS = ["msgspec", "pyarrow"]


@pytest.fixture(params=PARSERS)
def parser(request, monkeypatch):
    """With msgspec, and as where it is not installed."""
    _choose(request.param, monkeypatch)
    return request.param


@pytest.fixture(scope="module", params=PARSERS)
def parser_of_all(request):
    """As `parser`, for a module whose tests all have it."""
    with pytest.MonkeyPatch.context() as patch:
        _choose(request.param, patch)
        yield request.param


def _choose(parser, patch):
    if parser == "pyarrow":
        patch.setattr(records, "msgspec_module", lambda: None)
