"""A stream as a DataFrame. Knows only the executor's port. Source: none; PyFlink goes through its Table API."""

from __future__ import annotations

from typing import Any, Final

from penstock.common.job_client import result_of
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.datastream.connectors.files.kept_sink import kept_sink
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.model.errors import GraphError
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.program import FRAME_STREAM, FrameExecutor, JobExecutor
from penstock.runtime import operators as ops
from penstock.runtime.codecs.convert import arrow_schema

_NAME: Final = "DataFrame"


def to_frame(stream: StreamPlumbing, type_info: TypeInformation | None) -> Any:
    """Make a DataFrame: a lazy one in runtime mode BATCH; otherwise the job runs now.

    Other streams of the program stay for `execute`.

    Raises:
        GraphError: the type is not declared, or Spark has no such type.
    """
    from penstock.hosting.dataframes.schemas import schema_of

    schema_of(type_info)  # raises before anything is added to the program
    assert type_info is not None
    end = stream.add_sink(_NAME, ops.ToSchemaOperator(type_info), driver_stream=FRAME_STREAM)
    environment = stream.environment.plumbing
    part = environment.program.taken([end.node_id])

    def lazily(host: JobExecutor, graph: StreamGraph) -> Any:
        if isinstance(host, FrameExecutor):
            return host.lazy_frame(graph, environment.settings, type_info)
        host.submit(
            graph, environment.settings
        )  # an executor that only shows plans ends the program here
        raise GraphError(
            f"to_spark needs Spark, but this program runs on {type(host).__name__}. Leave "
            "use_executor(...) out, or collect the stream with execute_and_collect()."
        )

    frame = environment.run_on(lazily, program=part)
    return _run(stream, type_info) if frame is None else frame


def _run(stream: StreamPlumbing, type_info: TypeInformation) -> Any:
    environment = stream.environment.plumbing
    host = environment.executor
    assert isinstance(host, FrameExecutor)
    folder = host.results_folder(environment.settings)
    writers = ParquetBulkWriters.for_row_type(arrow_schema(type_info))
    sink = kept_sink(folder, writers)
    columns = stream.add_operator(_NAME, ops.ToSchemaOperator(type_info), type_info)
    node = columns.add_sink(_NAME, ops.SinkOperator(sink), sink, coordinator=sink)
    part = environment.program.taken([columns.upstreams[0].node_id, node.node_id])
    control = environment.run_on(
        lambda host, graph: host.submit(graph, environment.settings), program=part
    )
    result_of(control.job_id, control.wait())
    return host.frame_of_files(folder, environment.settings, type_info)
