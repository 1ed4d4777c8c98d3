"""Makes the context that an operator gets when it is opened, in one place for every kind of task. Does not know tasks.

A task of a TaskManager, one of a BATCH stage and one of a test describe their place (`TaskPlace`) and what they provide
(`OperatorServices`). A field that is added there has to be given by each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine.model.graph.chain import ChainedOperator
from penstock.engine.model.ids import JobId
from penstock.engine.runtime.operator import OperatorContext, OperatorServices, ProcessingTimers


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """One attempt of one subtask, and how its job runs.

    `restored_checkpoint_id`: the checkpoint that it starts from; None: it starts without one. `has_final_checkpoint`: one more
    checkpoint follows the end of its input. `is_batch`: the only watermark comes at the end.
    """

    job_name: str
    job_id: JobId
    task_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    job_parameters: Mapping[str, str]
    watermark_interval_ms: int
    restored_checkpoint_id: int | None
    has_final_checkpoint: bool
    is_batch: bool


def operator_context(
    place: TaskPlace, spec: ChainedOperator, timers: ProcessingTimers, services: OperatorServices
) -> OperatorContext:
    """The context of one operator of the task's chain. The chain adds what it knows."""
    return OperatorContext(
        job_name=place.job_name,
        job_id=place.job_id,
        task_name=place.task_name,
        operator_name=spec.name,
        operator_id=spec.uid,
        subtask=place.subtask,
        parallelism=place.parallelism,
        max_parallelism=place.max_parallelism,
        attempt=place.attempt,
        timers=timers,
        job_parameters=dict(place.job_parameters),
        output_type=spec.output_type,
        watermark_interval_ms=place.watermark_interval_ms,
        restored_checkpoint_id=place.restored_checkpoint_id,
        has_final_checkpoint=place.has_final_checkpoint,
        is_batch=place.is_batch,
        services=services,
    )
