"""`penstock doctor`: prints what the examination of a Spark application has found."""

from __future__ import annotations

import os
from collections.abc import Iterator

from penstock.engine.hosting.program import spark_host
from penstock.engine.hosting.spark.checks import Finding, JobKind
from penstock.engine.model.config import Settings
from penstock.ops.cli.remote.texts import show
from penstock.ops.doctor.examine import Diagnosis, examine


def doctor() -> int:
    """Print the diagnosis. Returns 0 if BATCH and STREAMING jobs can run. Raises: ConfigurationError: Spark does
    not start, or a setting is wrong.
    """
    host = spark_host.SparkHost()
    given = host.command_line()
    settings = Settings(
        command_line=given, spark=host.spark_configuration(Settings(command_line=given))
    )
    spark = spark_host.spark_session(settings, os.cpu_count() or 1)
    diagnosis = examine(spark, settings)
    show("\n".join(rendered(diagnosis)))
    return 0 if all(map(diagnosis.can_run, JobKind)) else 1


def rendered(diagnosis: Diagnosis) -> Iterator[str]:
    """The diagnosis as lines: what was found, what is wrong, which kinds of jobs can run."""
    yield from diagnosis.facts
    for finding in diagnosis.findings:
        yield ""
        yield f"{_weight(finding):8} {finding.what}."
        yield f"{'':8} {finding.remedy[0].upper()}{finding.remedy[1:]}."
    yield ""
    for kind in JobKind:
        yield f"{kind} jobs can{'' if diagnosis.can_run(kind) else 'not'} run."


def _weight(finding: Finding) -> str:
    if finding.stops:
        return "ERROR"
    return "HINT" if finding.is_hint else "WARNING"
