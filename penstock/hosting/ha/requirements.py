"""The bounds of parallelism that users have asked for, as they are kept with a job for the driver that takes it over."""

from __future__ import annotations

import json
import logging
from typing import Final

from penstock.machines.adaptive.requirements import check_requirements
from penstock.model.elastic.parallelism_bounds import (
    JobResourceRequirements,
    requirements_from_plain,
)
from penstock.model.errors import ConfigurationError
from penstock.model.graph.job_graph import JobGraph

_LOG: Final = logging.getLogger(__name__)


def requirements_of(text: str | None, job_graph: JobGraph) -> JobResourceRequirements | None:
    """Return what a former driver was asked for; None: nothing, or what does not fit the graph, which is logged."""
    if text is None:
        return None
    try:
        asked = requirements_from_plain(json.loads(text))
    except (ValueError, ConfigurationError) as error:
        findings: tuple[str, ...] = (str(error),)
    else:
        checked = check_requirements(asked, list(job_graph.vertices.values()))
        if not checked.findings:
            return checked.requirements
        findings = checked.findings
    cause = "; ".join(findings)
    _LOG.warning("job=%s requirements of a former driver are dropped: %s", job_graph.job_id, cause)
    return None
