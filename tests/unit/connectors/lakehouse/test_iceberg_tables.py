"""Iceberg's catalogs: what happens when one does not answer."""

import pytest

from penstock.common import Types
from penstock.connectors.lakehouse import IcebergSink
from penstock.engine.model.errors import ConfigurationError
from tests.tools.connectors.silent_server import silent_server


def test_a_catalog_that_accepts_and_never_answers_is_left_at_the_deadline():
    row_type = Types.ROW_NAMED(["id"], [Types.LONG()])
    with silent_server() as port:
        catalog = {
            "type": "rest",
            "uri": f"http://127.0.0.1:{port}",
            "penstock.timeout-ms": "300",
        }
        sink = IcebergSink.for_row_data("shop.orders", row_type).with_catalog("main", catalog)
        with pytest.raises(ConfigurationError, match=r"shop\.orders.* no answer within 0\.3 s"):
            sink.build().validate()
