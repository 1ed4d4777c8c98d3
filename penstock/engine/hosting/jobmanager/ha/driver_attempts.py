"""What a cluster does that starts the driver again: said at submit, and refused where output would come twice.

Knows Spark's configuration only. Source: YARN's application attempts; Flink's JobManager, which without high availability has lost
its jobs when it starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.engine.hosting.jobmanager.ha.packed_job import SubmittedJob
from penstock.engine.hosting.jobmanager.ha.settings import ha_settings_of
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options.checkpoints import RecoveryOptions
from penstock.engine.model.options.cluster import HighAvailabilityOptions
from penstock.engine.runtime.sink import Sink

_ATTEMPT: Final = "spark.app.attempt.id"
_MOST: Final = "spark.yarn.maxAppAttempts"


def check_attempt(
    job: SubmittedJob, settings: Settings, spark: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Check a streaming job with an exactly-once sink and without high availability, whose driver YARN starts again.

    Raises ConfigurationError: this is not the first attempt, and the job would begin where the first one began. A savepoint to begin from
    does not permit that: the first attempt had the same one.
    """
    is_in_cluster = spark.get("spark.submit.deployMode") == "cluster"
    if not is_in_cluster or spark.get("spark.master") != "yarn" or spark.get(_MOST) == "1":
        return
    if ha_settings_of(settings) is not None:
        return
    if not any(isinstance(place.coordinator, Sink) for place in job.coordinated):
        return
    attempt = spark.get(_ATTEMPT, "1")
    anew = HighAvailabilityOptions.BEGINS_ANEW.key
    if (
        attempt.isdecimal()
        and int(attempt) > 1
        and not settings.get(HighAvailabilityOptions.BEGINS_ANEW)
    ):
        path = settings.get(RecoveryOptions.PATH)
        start = "the start of its sources" if path is None else f"{path}, as the first attempt did"
        raise ConfigurationError(
            f"this is attempt {attempt} of the driver, and high-availability.type is NONE: job "
            f"{job.graph.name!r} would begin from {start}, and its exactly-once sinks would show "
            "again what the attempt before has shown. Set high-availability.type, or submit the "
            "application again with the newest checkpoint of that attempt "
            f"(execution.state-recovery.path), or set {anew}=true if that is right."
        )
    limit = spark.get(_MOST, "not set, so YARN's own limit counts")
    say(
        f"if this driver is lost, YARN starts it again ({_MOST}: {limit}). Without high "
        "availability the job then has to begin where it began first, which is refused unless "
        f"{anew} is true. Set high-availability.type to continue there, or {_MOST}=1"
    )
