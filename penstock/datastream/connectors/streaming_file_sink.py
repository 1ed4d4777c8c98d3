"""StreamingFileSink: FileSink under its former name, for add_sink(). Source: pyflink.datastream.connectors.file_system."""

from __future__ import annotations

from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.datastream.connectors.files.sink import FileSink, RollingPolicy


class StreamingFileSink(FileSink):
    """Made by a builder: `StreamingFileSink.for_row_format(path, encoder).build()`."""

    @staticmethod
    def for_row_format(
        base_path: str, encoder: Encoder
    ) -> StreamingFileSink.DefaultRowFormatBuilder:
        return StreamingFileSink.DefaultRowFormatBuilder(base_path, encoder, None)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        return StreamingFileSink.DefaultBulkFormatBuilder(base_path, None, writer_factory)

    class BaseBuilder(FileSink.BaseBuilder):
        """As FileSink's."""

        def with_rolling_policy(self, policy: RollingPolicy) -> StreamingFileSink.BaseBuilder:
            super().with_rolling_policy(policy)
            return self

        def build(self) -> StreamingFileSink:
            return StreamingFileSink(self._settings)

    class DefaultRowFormatBuilder(BaseBuilder, FileSink.RowFormatBuilder):
        """Rolls by the default policy."""

    class DefaultBulkFormatBuilder(BaseBuilder, FileSink.BulkFormatBuilder):
        """Rolls at the commit."""
