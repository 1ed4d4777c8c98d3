"""A stream as a DataFrame. Knows only the executor's port. Source: none; PyFlink goes through its Table API."""

from __future__ import annotations

from typing import Any, Final

from penstock.common.job_client import result_of
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.files.kept_sink import kept_sink
from penstock.datastream.building.stream_plumbing import StreamPlumbing
from penstock.engine.model.errors import GraphError
from penstock.engine.model.graph.stream_graph import StreamGraph
from penstock.engine.model.program import FRAME_STREAM, FrameExecutor, JobExecutor
from penstock.engine.runtime import operators as ops
from penstock.engine.runtime.codecs.convert import arrow_schema
from penstock.formats.parquet import ParquetBulkWriters

_NAME: Final = "DataFrame"


def to_frame(stream: StreamPlumbing, type_info: TypeInformation | None) -> Any:
    """Make a DataFrame: a lazy one in runtime mode BATCH; otherwise the job runs now.

    Other streams of the program stay for `execute`.

    Raises:
        GraphError: the type is not declared, or Spark has no such type.
    """
    from penstock.engine.hosting.spark.dataframes.schemas import schema_of

    schema_of(type_info)  # raises before anything is added to the program
    assert type_info is not None
    end = stream.add_sink(_NAME, ops.ToSchemaOperator(type_info), driver_stream=FRAME_STREAM)
    _skip_as_before(stream, end.node_id)
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


def _skip_as_before(stream: StreamPlumbing, node_id: int) -> None:
    """Skip records that have no columns if all operators that make them skip poison records: nobody sets a policy of a DataFrame."""
    rules = stream.program.error_rules
    before = {rules.get(one.node_id) if one.tag is None else None for one in stream.upstreams}
    rule = before.pop()
    if not before and rule is not None and rule.tag is None:
        rules[node_id] = rule


def _run(stream: StreamPlumbing, type_info: TypeInformation) -> Any:
    environment = stream.environment.plumbing
    host = environment.executor
    assert isinstance(host, FrameExecutor)
    folder = host.results_folder(environment.settings)
    writers = ParquetBulkWriters.for_row_type(arrow_schema(type_info))
    sink = kept_sink(folder, writers)
    columns = stream.add_operator(_NAME, ops.ToSchemaOperator(type_info), type_info)
    _skip_as_before(stream, columns.upstreams[0].node_id)
    node = columns.add_sink(_NAME, ops.SinkOperator(sink), sink, coordinator=sink)
    part = environment.program.taken([columns.upstreams[0].node_id, node.node_id])
    control = environment.run_on(
        lambda host, graph: host.submit(graph, environment.settings), program=part
    )
    result_of(control.job_id, control.wait())
    return host.frame_of_files(folder, environment.settings, type_info)
