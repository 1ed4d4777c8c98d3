"""A stream as a DataFrame. Knows the executor's port only. Source: none; PyFlink goes through its Table API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.common.job_client import result_of
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.building.program import Upstream
from penstock.datastream.connectors.files.buckets import BucketAssigner
from penstock.datastream.connectors.files.sink import FileSink
from penstock.datastream.formats.parquet import ParquetBulkWriters
from penstock.model.errors import GraphError
from penstock.model.graph.stream_graph import StreamGraph
from penstock.model.program import FRAME_STREAM, FrameExecutor, JobExecutor
from penstock.runtime import operators as ops
from penstock.runtime.codecs.convert import arrow_schema

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

_NAME: Final = "DataFrame"


def to_frame(
    environment: StreamExecutionEnvironment,
    upstreams: tuple[Upstream, ...],
    type_info: TypeInformation | None,
) -> Any:
    """Lazy in runtime mode BATCH; else the job runs now. Other streams of the program stay for `execute`.

    Raises: GraphError: the type is not declared, or Spark has no such type.
    """
    from penstock.hosting.dataframes.schemas import schema_of

    schema_of(type_info)  # refuses before anything is added
    assert type_info is not None
    program = environment.program
    operator = ops.ToSchemaOperator(type_info)
    end = program.add_sink(_NAME, operator, upstreams, driver_stream=FRAME_STREAM)
    part = program.taken([end.node_id])

    def lazily(host: JobExecutor, graph: StreamGraph) -> Any:
        if isinstance(host, FrameExecutor):
            return host.lazy_frame(graph, environment.settings, type_info)
        host.submit(
            graph, environment.settings
        )  # who only shows plans shows it, and ends the program
        raise GraphError(f"to_spark needs Spark, and this program runs on {type(host).__name__}.")

    frame = environment.run_on(lazily, environment.stream_graph(program=part))
    return _run(environment, upstreams, type_info) if frame is None else frame


def _run(
    environment: StreamExecutionEnvironment,
    upstreams: tuple[Upstream, ...],
    type_info: TypeInformation,
) -> Any:
    host = environment.executor
    assert isinstance(host, FrameExecutor)
    folder = host.results_folder(environment.settings)
    writers = ParquetBulkWriters.for_row_type(arrow_schema(type_info))
    builder = FileSink.for_bulk_format(folder, writers)
    sink = builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()
    program = environment.program
    operator = ops.ToSchemaOperator(type_info)
    columns = program.add_operator(_NAME, operator, upstreams, output_type=type_info)
    behind = (Upstream(columns.node_id),)
    node = program.add_sink(_NAME, ops.SinkOperator(sink), behind, coordinator=sink)
    program.endpoints[node.node_id] = sink
    part = program.taken([columns.node_id, node.node_id])
    control = environment.run_on(
        lambda host, graph: host.submit(graph, environment.settings),
        environment.stream_graph(program=part),
    )
    result_of(control.job_id, control.wait())
    return host.frame_of_files(folder, environment.settings, type_info)
