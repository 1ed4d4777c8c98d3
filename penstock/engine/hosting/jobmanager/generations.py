"""What else has to know that another generation of a job begins, beside its tasks."""

from __future__ import annotations

import logging
from typing import Final

from penstock.engine.hosting.jobmanager.coordinators.coordinators import Coordinators
from penstock.engine.hosting.observer import JobObserver
from penstock.engine.model.graph.rescaling import parallelism_of
from penstock.engine.model.messages import GraphReplaced

_LOG: Final = logging.getLogger(__name__)


def tell_of_generation(
    effect: GraphReplaced, coordinators: Coordinators, observer: JobObserver
) -> None:
    """Tell enumerators how many readers they have from now on, and observers what the job looks like.

    Their state follows, unless there is no checkpoint: then they begin without any.
    """
    parallelism = parallelism_of(effect.job_graph)
    coordinators.rescale({
        one: count for one, count in parallelism.items() if one not in effect.kept
    })
    if effect.checkpoint_id is None:
        coordinators.restore(())
    text = "job=%s RESCALES subtasks=%d checkpoint=%s planned=%s kept=%d"
    subtasks, kept = sum(parallelism.values()), sum(parallelism[one] for one in effect.kept)
    job_id, checkpoint_id = effect.job_graph.job_id, effect.checkpoint_id
    _LOG.info(text, job_id, subtasks, checkpoint_id, effect.is_planned, kept)
    observer.observe(effect)
