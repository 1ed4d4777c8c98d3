"""Types, times, configuration and results: pyflink.common, module by module.

A name's module is imported when the name is asked for. Programs and TaskManagers so import what they use.
"""

from typing import TYPE_CHECKING

from penstock.common.absent import absent, listing
from penstock.common.places import PLACES, ROW_SCHEMAS

if TYPE_CHECKING:
    from penstock.common.completable_future import CompletableFuture as CompletableFuture
    from penstock.common.config_options import ConfigOption as ConfigOption
    from penstock.common.config_options import ConfigOptions as ConfigOptions
    from penstock.common.configuration import Configuration as Configuration
    from penstock.common.execution_config import ExecutionConfig as ExecutionConfig
    from penstock.common.input_dependency_constraint import (
        InputDependencyConstraint as InputDependencyConstraint,
    )
    from penstock.common.job_client import JobClient as JobClient
    from penstock.common.job_execution_result import JobExecutionResult as JobExecutionResult
    from penstock.common.job_id import JobID as JobID
    from penstock.common.job_status import JobStatus as JobStatus
    from penstock.common.restart_strategy import RestartStrategies as RestartStrategies
    from penstock.common.restart_strategy import (
        RestartStrategyConfiguration as RestartStrategyConfiguration,
    )
    from penstock.common.serialization import ByteArraySchema as ByteArraySchema
    from penstock.common.serialization import DeserializationSchema as DeserializationSchema
    from penstock.common.serialization import Encoder as Encoder
    from penstock.common.serialization import SerializationSchema as SerializationSchema
    from penstock.common.serialization import SimpleStringSchema as SimpleStringSchema
    from penstock.common.time import Duration as Duration
    from penstock.common.time import Instant as Instant
    from penstock.common.time import Time as Time
    from penstock.common.typeinfo import TypeInformation as TypeInformation
    from penstock.common.typeinfo import Types as Types
    from penstock.common.types import Row as Row
    from penstock.common.types import RowKind as RowKind
    from penstock.common.watermark_strategy import WatermarkStrategy as WatermarkStrategy
    from penstock.engine.runtime.windows import TypeSerializer as TypeSerializer

__getattr__ = absent(
    __name__,
    {"AssignerWithPeriodicWatermarksWrapper": "It wraps a Java class; use a WatermarkStrategy."},
    elsewhere={**PLACES, **ROW_SCHEMAS},
    is_package=True,
)
__dir__ = listing(globals(), PLACES)
