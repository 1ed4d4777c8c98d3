"""The names of `penstock.connectors.streaming_file_sink`, where PyFlink's programs import them."""

from penstock.connectors.streaming_file_sink import StreamingFileSink

__all__ = ["StreamingFileSink"]
