"""Types, times, configuration and results: pyflink.common, module by module.

A name's module is imported when the name is asked for. Programs and TaskManagers so import what they use.
"""

from typing import TYPE_CHECKING

from penstock.common.absent import absent, listing
from penstock.common.places import PLACES, ROW_SCHEMAS

if TYPE_CHECKING:
    from penstock.common.completable_future import CompletableFuture
    from penstock.common.config_options import ConfigOption, ConfigOptions
    from penstock.common.configuration import Configuration
    from penstock.common.execution_config import ExecutionConfig
    from penstock.common.input_dependency_constraint import InputDependencyConstraint
    from penstock.common.job_client import JobClient
    from penstock.common.job_execution_result import JobExecutionResult
    from penstock.common.job_id import JobID
    from penstock.common.job_status import JobStatus
    from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
    from penstock.common.serialization import (
        ByteArraySchema,
        DeserializationSchema,
        Encoder,
        SerializationSchema,
        SimpleStringSchema,
    )
    from penstock.common.time import Duration, Instant, Time
    from penstock.common.typeinfo import TypeInformation, Types
    from penstock.common.types import Row, RowKind
    from penstock.common.watermark_strategy import WatermarkStrategy
    from penstock.engine.runtime.windows import TypeSerializer

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "InputDependencyConstraint",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]

__getattr__ = absent(
    __name__,
    {"AssignerWithPeriodicWatermarksWrapper": "It wraps a Java class; use a WatermarkStrategy."},
    elsewhere={**PLACES, **ROW_SCHEMAS},
    is_package=True,
)
__dir__ = listing(globals(), PLACES)
