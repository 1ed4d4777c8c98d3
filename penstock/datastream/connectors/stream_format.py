"""The names of `penstock.connectors.stream_format`, where PyFlink's programs import them."""

from penstock.connectors.stream_format import StreamFormat

__all__ = ["StreamFormat"]
