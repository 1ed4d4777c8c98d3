"""The clocks of a task, and its speed, which limits how many records its producers send ahead.

Source: Flink StreamTask.setupBuffersDebloat, as far as it decides who takes part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.engine.hosting.os.clock import wall_ms
from penstock.engine.hosting.taskmanager.task.ports import TaskAttempt
from penstock.engine.runtime.network.gate.debloater import FIRST_ROWS
from penstock.engine.runtime.network.gate.single import SingleInputGate
from penstock.engine.runtime.task.chain import OperatorChain, column_cuts
from penstock.engine.runtime.task.slices import ColumnCuts, Pace, TaskTiming


def task_timing(
    attempt: TaskAttempt, chain: OperatorChain, gates: Sequence[SingleInputGate]
) -> TaskTiming:
    """`gates`: of the task's inputs, which have requested nothing yet."""
    timeouts = (output.buffer_timeout_ms for output in chain.spec.outputs)
    timeout_ms = min(timeouts, default=100)
    steps = attempt.host.task_settings.steps
    return TaskTiming(
        time.perf_counter_ns,
        wall_ms,
        max_step_ns=int(steps.most_ms * 1e6),
        buffer_timeout_ns=(timeout_ms if timeout_ms >= 0 else 100) * 1_000_000,
        pace=_pace(attempt, chain, gates),
        column_rows=steps.column_rows,
    )


def _pace(
    attempt: TaskAttempt, chain: OperatorChain, gates: Sequence[SingleInputGate]
) -> Pace | None:
    """None: nothing limits the records in flight, because the task takes whole batches, reads results that lie on disk,
    or the program wants no limit.
    """
    target_ms = attempt.host.task_settings.network.in_flight_ms
    is_on_disk = any(one.result_type.is_released_by_scheduler for one in attempt.deployment.gates)
    if not gates or not target_ms or is_on_disk or column_cuts(chain) is ColumnCuts.NEVER:
        return None
    limit = gates[0].context.in_flight
    limit.rows = FIRST_ROWS
    for gate in gates:
        limit.add(gate)
    channels = sum(gate.channels for gate in gates)
    return Pace(target_ms * 1_000_000, channels, limit.rows, limit.announce)
