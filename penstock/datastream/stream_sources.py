"""The sources of a program: streams of values, files, sockets, DataFrames, and of any Source.

Source: the methods of pyflink.datastream.StreamExecutionEnvironment; differs: `from_spark` is an addition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from penstock.common.io import InputFormat
from penstock.common.time import Duration
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.common.types import Row
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.connectors.datagen import CollectionSource
from penstock.connectors.files.source import FileSource
from penstock.connectors.socket_text import SocketTextSource
from penstock.datastream.building.adapters import checked_type
from penstock.datastream.building.environment_plumbing import EnvironmentPlumbing
from penstock.datastream.building.program import Upstream
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.data_stream import DataStream
from penstock.datastream.functions.type_variables import T
from penstock.engine.model.errors import GraphError
from penstock.engine.runtime.sources.contract import Boundedness, Source
from penstock.engine.runtime.sources.operator import SourceOperator
from penstock.formats.file_format import FileInputFormat


class StreamSources:
    """The part of StreamExecutionEnvironment that begins a program."""

    plumbing: EnvironmentPlumbing

    @overload
    def from_collection(
        self, collection: Sequence[Any], type_info: RowTypeInfo
    ) -> DataStream[Row]: ...

    @overload
    def from_collection(
        self, collection: Sequence[T], type_info: TypeInformation | None = None
    ) -> DataStream[T]: ...

    def from_collection(
        self, collection: Sequence[Any], type_info: TypeInformation | None = None
    ) -> DataStream[Any]:
        """Create a bounded stream of the given values, with parallelism 1.

        With `type_info` each value is converted to that type here.
        """
        declared = checked_type(type_info, "from_collection", "type_info")
        source = CollectionSource.of(collection, declared)
        return self._source(source, None, "Collection Source", declared, parallelism=1)

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Create a stream that reads a source.

        Args:
            source: a Source of penstock.datastream.connectors, or of your own.
            watermark_strategy: `WatermarkStrategy.no_watermarks()` for none.
            source_name: the operator's name.
            type_info: the type of the records, if the source does not declare it.
        """
        if not isinstance(source, Source):
            raise TypeError(
                "from_source takes a Source of penstock.datastream.connectors, got "
                f"{type(source).__name__}."
            )
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise TypeError(
                "from_source takes a WatermarkStrategy as second argument, got "
                f"{type(watermark_strategy).__name__}; WatermarkStrategy.no_watermarks() for none."
            )
        return self._source(source, watermark_strategy, source_name, type_info)

    def from_spark(
        self,
        frame: Any,
        timestamp_column: str | None = None,
        watermark: WatermarkStrategy | Duration | None = None,
        source_name: str = "DataFrame",
    ) -> DataStream[Any]:
        """Create a stream of the rows of a bounded DataFrame. Not in PyFlink.

        Records are Rows with the DataFrame's column names; operators on columns make no Row.
        Partitions are read one after the other: a bound holds if later ones have no earlier times.

        Args:
            frame: the DataFrame; docs/guides/dataframes.md lists the column types.
            timestamp_column: the column with each record's event time: TIMESTAMP, TIMESTAMP_NTZ
                (as UTC), DATE or BIGINT (epoch ms).
            watermark: a strategy, or the Duration by which records are out of order at most. None:
                the only watermark is the last one, after all rows.
            source_name: the operator's name.

        Raises:
            GraphError: a column's type has no counterpart, or a Duration has no `timestamp_column`.
            TypeError: `frame` is not a DataFrame.
        """
        from penstock.engine.hosting.spark.dataframes.frames import frame_source

        source = frame_source(frame, timestamp_column)
        if watermark is not None and not isinstance(watermark, WatermarkStrategy):
            if timestamp_column is None:
                raise GraphError(
                    "from_spark: a watermark needs event times: name the timestamp_column, or "
                    "give a WatermarkStrategy with a timestamp assigner."
                )
            watermark = WatermarkStrategy.for_bounded_out_of_orderness(watermark)
        stream = self._source(source, watermark, source_name, None, takes_tuples=True)
        copy: Any = stream.plumbing.node("from_spark").coordinator
        copy.frame = source.frame  # It is pickled without it.
        return stream

    def socket_text_stream(self, host: str, port: int, delimiter: str = "\n") -> DataStream[str]:
        """Create a stream of the lines that a TCP server sends, until it closes; parallelism 1.

        Flink has this in its Java API only.
        """
        source = SocketTextSource(host, port, delimiter)
        return self._source(source, None, "Socket Stream", None, parallelism=1)

    def add_source(
        self,
        source_func: Any,
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> DataStream[Any]:
        """Create a stream from a Source, without watermarks.

        There are no Java source functions here.
        """
        return self.from_source(
            source_func, WatermarkStrategy.no_watermarks(), source_name, type_info
        )

    def create_input(
        self, input_format: InputFormat, type_info: TypeInformation | None = None
    ) -> DataStream[Any]:
        """Create a stream from an InputFormat such as AvroInputFormat, without watermarks."""
        if not isinstance(input_format, InputFormat):
            raise TypeError(
                "create_input takes an InputFormat such as AvroInputFormat, got "
                f"{type(input_format).__name__}. Use env.from_source with FileSource or a subclass "
                "of penstock.datastream.connectors.Source."
            )
        return self.from_source(
            _source_of(input_format),
            WatermarkStrategy.no_watermarks(),
            "Custom File Source",
            type_info,
        )

    # ---------------------------------------------------------- private

    def _source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None,
        name: str,
        type_info: TypeInformation | None,
        parallelism: int = -1,
        *,
        takes_tuples: bool = False,
    ) -> DataStream[Any]:
        element_type = checked_type(type_info, name, "type_info") or source.produced_type
        if element_type == Types.PICKLED_BYTE_ARRAY():
            element_type = None
        node = self.plumbing.program.add_source(
            name,
            SourceOperator(source, watermark_strategy or WatermarkStrategy.no_watermarks()),
            source,
            takes_tuples=takes_tuples,
            parallelism=parallelism if parallelism > 0 else source.default_parallelism or -1,
            is_parallelism_fixed=parallelism > 0,
            is_bounded=source.boundedness is Boundedness.BOUNDED,
            output_type=element_type,
            coordinator=source,
        )
        environment: Any = self  # The derived class has what a stream asks of it.
        return DataStream(StreamPlumbing(environment, (Upstream(node.node_id),), element_type))


def _source_of(input_format: InputFormat) -> Source:
    if isinstance(input_format, FileInputFormat):
        return FileSource.for_record_stream_format(
            input_format.file_format, input_format.path
        ).build()
    return input_format.create_source()
