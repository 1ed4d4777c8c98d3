"""StreamingFileSink: FileSink under its former name, for add_sink(). Source: pyflink.datastream.connectors.file_system."""

from __future__ import annotations

from penstock.common.serialization import BulkWriterFactory, Encoder
from penstock.datastream.connectors.files.sink import FileSink, RollingPolicy


class StreamingFileSink(FileSink):
    """Writes files, as FileSink does, for older programs.

    Build it: `StreamingFileSink.for_row_format(path, encoder).build()`.
    """

    @staticmethod
    def for_row_format(
        base_path: str, encoder: Encoder
    ) -> StreamingFileSink.DefaultRowFormatBuilder:
        """Return a builder of a sink that encodes value by value."""
        return StreamingFileSink.DefaultRowFormatBuilder(base_path, encoder, None)

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> StreamingFileSink.DefaultBulkFormatBuilder:
        """Return a builder of a sink that writes whole batches."""
        return StreamingFileSink.DefaultBulkFormatBuilder(base_path, None, writer_factory)

    class BaseBuilder(FileSink.BaseBuilder):
        """Builds a StreamingFileSink, with the settings of FileSink's builder."""

        def with_rolling_policy(self, policy: RollingPolicy) -> StreamingFileSink.BaseBuilder:
            """Set when a part file is closed and another one started."""
            super().with_rolling_policy(policy)
            return self

        def build(self) -> StreamingFileSink:
            """Return the sink."""
            return StreamingFileSink(self._settings)

    class DefaultRowFormatBuilder(BaseBuilder, FileSink.RowFormatBuilder):
        """Builds a sink that rolls by the default policy."""

    class DefaultBulkFormatBuilder(BaseBuilder, FileSink.BulkFormatBuilder):
        """Builds a sink that rolls at each checkpoint."""
