"""In which module each name of this package is. Does not import them. Source: pyflink.common."""

from typing import Final

_NAMES: Final = {
    "completable_future": ("CompletableFuture",),
    "config_options": ("ConfigOption", "ConfigOptions"),
    "configuration": ("Configuration",),
    "execution_config": ("ExecutionConfig",),
    "input_dependency_constraint": ("InputDependencyConstraint",),
    "job_client": ("JobClient",),
    "job_execution_result": ("JobExecutionResult",),
    "job_id": ("JobID",),
    "job_status": ("JobStatus",),
    "restart_strategy": ("RestartStrategies", "RestartStrategyConfiguration"),
    "serialization": (
        "ByteArraySchema",
        "DeserializationSchema",
        "Encoder",
        "SerializationSchema",
        "SimpleStringSchema",
    ),
    "time": ("Duration", "Instant", "Time"),
    "typeinfo": ("TypeInformation", "Types"),
    "types": ("Row", "RowKind"),
    "watermark_strategy": ("WatermarkStrategy",),
}
PLACES: Final = {
    **{name: f"penstock.common.{module}" for module, names in _NAMES.items() for name in names},
    "TypeSerializer": "penstock.engine.runtime.windows",
}
"""A module is imported when one of its names is asked for."""

ROW_SCHEMAS: Final = {
    f"{kind}Row{way}Schema": f"penstock.datastream.formats.{kind.lower()}"
    for kind in ("Json", "Csv", "Avro")
    for way in ("Serialization", "Deserialization")
}
"""The module one floor above: PyFlink 1 had these names here, and PyFlink 2 also has them in pyflink.common."""
