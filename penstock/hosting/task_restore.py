"""What an attempt begins with: from the handles of its deployment to the snapshots that its operators restore.

On the task's own thread, before its operators are opened. Source: Flink StreamTaskStateInitializerImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.hosting.closures import loads_records
from penstock.model.checkpoints import StateHandle
from penstock.model.completed_checkpoint import TaskRestore
from penstock.model.deployment import TaskDeployment
from penstock.model.errors import PenstockError, UserError
from penstock.model.key_groups import key_group_range
from penstock.runtime.checkpoint.snapshot import OperatorSnapshot
from penstock.runtime.checkpoint.state_format import read_operator


def groups_of(deployment: TaskDeployment) -> tuple[int, int]:
    """First and last key group of the subtask."""
    subtask = deployment.attempt_id.subtask
    return key_group_range(deployment.max_parallelism, deployment.parallelism, subtask)


def read_states(
    deployment: TaskDeployment, restore: TaskRestore, read: Callable[[StateHandle], bytes]
) -> Mapping[str, OperatorSnapshot]:
    """By uid. `read`: the bytes of a handle, checked; it may raise to end a task that was cancelled.

    Raises: CheckpointDamaged, naming the file; CheckpointIoError; UserError: values that cannot be made again.
    """
    groups = groups_of(deployment)
    states: dict[str, OperatorSnapshot] = {}
    for uid, state in restore.operators:
        try:
            states[uid] = read_operator(state, read, groups, loads_records)
        except PenstockError:
            raise
        except Exception as error:
            raise UserError(
                f"the state of operator {uid!r} in checkpoint {restore.checkpoint_id} cannot be read: "
                f"{type(error).__name__}: {error}. Classes of its values must be importable where the task runs, under the "
                "names that they had when it was written."
            ) from error
    return states
