"""What else has to know that another generation of a job begins, beside its tasks."""

from __future__ import annotations

import logging
from typing import Final

from penstock.hosting.coordinators.coordinators import Coordinators
from penstock.hosting.observer import JobObserver
from penstock.model.graph.rescaling import parallelism_of
from penstock.model.messages import GraphReplaced

_LOG: Final = logging.getLogger(__name__)


def tell_of_generation(
    effect: GraphReplaced, coordinators: Coordinators, observer: JobObserver
) -> None:
    """Tell enumerators how many readers they have from now on, and observers what the job looks like.

    Their state follows, unless there is no checkpoint: then they begin without any.
    """
    parallelism = parallelism_of(effect.job_graph)
    coordinators.rescale(parallelism)
    if effect.checkpoint_id is None:
        coordinators.restore(())
    text = "job=%s RESCALES subtasks=%d checkpoint=%s planned=%s"
    subtasks = sum(parallelism.values())
    _LOG.info(text, effect.job_graph.job_id, subtasks, effect.checkpoint_id, effect.is_planned)
    observer.graph_replaced(effect)
