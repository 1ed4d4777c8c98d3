"""What a cluster does that starts the driver again: said at submit, and refused where output would come twice.

Knows Spark's configuration only. Source: YARN's application attempts; Flink's JobManager, which without high availability has lost
its jobs when it starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.hosting.coordinators.coordinators import committers_of
from penstock.hosting.ha.packed_job import SubmittedJob
from penstock.hosting.ha.settings import ha_settings_of
from penstock.model.config import Settings
from penstock.model.errors import ConfigurationError
from penstock.model.options.checkpoints import RecoveryOptions
from penstock.model.options.high_availability import HighAvailabilityOptions

_ATTEMPT: Final = "spark.app.attempt.id"
_MOST: Final = "spark.yarn.maxAppAttempts"


def check_attempt(
    job: SubmittedJob, settings: Settings, spark: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Check a streaming job with an exactly-once sink and without high availability, whose driver YARN starts again.

    Raises ConfigurationError: this is not the first attempt, and the job would begin from nothing.
    """
    is_in_cluster = spark.get("spark.submit.deployMode") == "cluster"
    if not is_in_cluster or spark.get("spark.master") != "yarn" or spark.get(_MOST) == "1":
        return
    if ha_settings_of(settings) is not None or not committers_of(job.coordinated):
        return
    attempt = spark.get(_ATTEMPT, "1")
    begins = settings.is_set(RecoveryOptions.PATH) or settings.is_set(RecoveryOptions.OLD_PATH)
    may_begin = begins or settings.get(HighAvailabilityOptions.BEGINS_ANEW)
    anew = HighAvailabilityOptions.BEGINS_ANEW.key
    if attempt.isdecimal() and int(attempt) > 1 and not may_begin:
        raise ConfigurationError(
            f"this is attempt {attempt} of the driver, and high-availability.type is NONE: job "
            f"{job.graph.name!r} would begin from the start of its sources, and its exactly-once "
            "sinks would show again what the attempt before has shown. Set "
            "high-availability.type, or begin with the newest checkpoint of that attempt "
            f"(execution.state-recovery.path), or set {anew}=true if that is right."
        )
    limit = spark.get(_MOST, "not set, so YARN's own limit counts")
    say(
        f"if this driver is lost, YARN starts it again ({_MOST}: {limit}). Without high "
        "availability the job then has to begin from nothing, which is refused unless "
        f"{anew} is true. Set high-availability.type to continue there, or {_MOST}=1"
    )
