"""Whether a job can be elastic, and the error if its slots do not come.

Source: Flink AdaptiveScheduler.assertPreconditions, NoResourceAvailableException.
"""

from __future__ import annotations

from penstock.engine.machines.generations.desired_resources import DesiredResources
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.job_graph import JobGraph
from penstock.engine.model.messages import FailureInfo

_NEXT_STEP = "Set 'jobmanager.scheduler: Default', or change the program."


def check_elastic(job_graph: JobGraph) -> None:
    """Raises: ConfigurationError: the parallelism of the job cannot change while it runs."""
    for vertex in job_graph.vertices.values():
        if vertex.parallelism < 1:
            raise ConfigurationError(
                "the Adaptive scheduler needs the parallelism of each vertex, and "
                f"'{vertex.name}' has none. {_NEXT_STEP}"
            )
        blocking = [
            data for data in vertex.outputs if not data.result_type.must_be_pipelined_consumed
        ]
        if blocking:
            raise ConfigurationError(
                "the Adaptive scheduler takes pipelined exchanges only, and one of "
                f"'{vertex.name}' is {blocking[0].result_type}. {_NEXT_STEP}"
            )
    refusal = refusal_of_sizes(job_graph)
    if refusal is not None:
        raise ConfigurationError(f"{refusal}. {_NEXT_STEP}")


def refusal_of_sizes(job_graph: JobGraph) -> str | None:
    """Return why slots of different sizes keep the job from being rescaled; None: it has none."""
    if not job_graph.slot_sizes:
        return None
    groups = ", ".join(repr(group) for group in job_graph.slot_sizes)
    return f"slot sharing groups that ask for resources ({groups}) cannot be rescaled"


def no_slots(name: str, desired: DesiredResources, held: int) -> FailureInfo:
    """The wait for slots is over, and there are fewer than the job needs at least."""
    return FailureInfo(
        "NoResourceAvailable",
        f"Job '{name}' needs at least {desired.minimum_slots} slots and wants "
        f"{desired.desired_slots}, but it has {held} after "
        "'jobmanager.adaptive-scheduler.submission.resource-wait-timeout'. Give "
        "the cluster more cores, or lower the lower bounds of its vertices.",
        is_recoverable=False,
    )
