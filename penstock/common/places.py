"""In which module each name of this package is. Does not import them. Source: pyflink.common."""

from typing import Final

_NAMES: Final = {
    "penstock.common.completable_future": ("CompletableFuture",),
    "penstock.common.config_options": ("ConfigOption", "ConfigOptions"),
    "penstock.common.configuration": ("Configuration",),
    "penstock.common.execution_config": ("ExecutionConfig",),
    "penstock.common.input_dependency_constraint": ("InputDependencyConstraint",),
    "penstock.common.job_client": ("JobClient",),
    "penstock.common.job_execution_result": ("JobExecutionResult",),
    "penstock.common.job_id": ("JobID",),
    "penstock.common.job_status": ("JobStatus",),
    "penstock.common.restart_strategy": ("RestartStrategies", "RestartStrategyConfiguration"),
    "penstock.common.serialization": (
        "ByteArraySchema",
        "DeserializationSchema",
        "Encoder",
        "SerializationSchema",
        "SimpleStringSchema",
    ),
    "penstock.common.time": ("Duration", "Instant", "Time"),
    "penstock.common.typeinfo": ("TypeInformation", "Types"),
    "penstock.common.types": ("Row", "RowKind"),
    "penstock.common.watermark_strategy": ("WatermarkStrategy",),
    "penstock.runtime.windowing.serializers": ("TypeSerializer",),
}
PLACES: Final = {name: module for module, names in _NAMES.items() for name in names}
"""A module is imported when one of its names is asked for."""

ROW_SCHEMAS: Final = {
    f"{kind}Row{way}Schema": f"penstock.datastream.formats.{kind.lower()}"
    for kind in ("Json", "Csv", "Avro")
    for way in ("Serialization", "Deserialization")
}
"""The module one floor above: PyFlink 1 had these names here, and PyFlink 2 also has them in pyflink.common."""
