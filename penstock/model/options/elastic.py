"""Options of jobs whose parallelism changes while they run.

Does not know their readers. Source: Flink JobManagerOptions, WebOptions (docs/spec/elasticity.md#options). Differs:
where nothing is set, `penstock.elastic.profile` may stand for other values than the defaults below, which are Flink's.
"""

from typing import Final

from penstock.model.options.option import (
    OptionGroup,
    duration,
    flag,
    number,
    signed_duration,
    size,
    text,
    whole,
)


class ElasticOptions(OptionGroup, title="Elastic jobs"):
    """When the Adaptive scheduler changes the parallelism of a running job."""

    PROFILE: Final = text(
        "penstock.elastic.profile",
        "penstock",
        (
            "Values of the options of this table that are not set. `flink`: their defaults. "
            "`penstock`: a cooldown of 10 s, stabilization of 2 s at submission, and of 10 s later "
            "while TaskManagers are starting, a trigger after at most 5 s, and 16 rescales kept; "
            "because a rescale takes about a second. The tables of the autoscaler have both values."
        ),
    )
    MODE: Final = text(
        "scheduler-mode",
        None,
        (
            "`reactive`: the job uses all slots that there are, up to the max parallelism of its "
            "vertices."
        ),
    )
    OLD_WAIT_TIMEOUT: Final = signed_duration(
        "jobmanager.adaptive-scheduler.resource-wait-timeout",
        "5 min",
        (
            "Older key of "
            "jobmanager.adaptive-scheduler.submission.resource-wait-timeout. "
            "Used when that is not set."
        ),
    )
    WAIT_TIMEOUT: Final = signed_duration(
        "jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
        "5 min",
        (
            "How long a job waits for enough slots before it goes on with what there is, or fails. "
            "Negative: for ever, as in reactive mode if it is not set."
        ),
        fallback=OLD_WAIT_TIMEOUT,
    )
    OLD_SUBMISSION_STABILIZATION: Final = duration(
        "jobmanager.adaptive-scheduler.resource-stabilization-timeout",
        "10 s",
        (
            "Older key of "
            "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout. "
            "Used when that is not set."
        ),
    )
    SUBMISSION_STABILIZATION: Final = duration(
        "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout",
        "10 s",
        (
            "How long a job that could start waits for the rest of the slots that it wants. "
            "In reactive mode not at all, if it is not set."
        ),
        fallback=OLD_SUBMISSION_STABILIZATION,
    )
    OLD_COOLDOWN: Final = duration(
        "jobmanager.adaptive-scheduler.scaling-interval.min",
        "30 s",
        (
            "Older key of "
            "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling. "
            "Used when that is not set."
        ),
    )
    COOLDOWN: Final = duration(
        "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling",
        "30 s",
        (
            "How long the parallelism stays as it is after a job has begun to run, also after a "
            "failure."
        ),
        fallback=OLD_COOLDOWN,
    )
    EXECUTING_STABILIZATION: Final = duration(
        "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout",
        "1 min",
        "How long a job that could change waits for the rest of the slots that it wants.",
    )
    MAX_CHECKPOINT_FAILURES: Final = whole(
        "jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures",
        "2",
        "A change waits for the next completed checkpoint, or for so many failed ones.",
    )
    MAX_TRIGGER_DELAY: Final = duration(
        "jobmanager.adaptive-scheduler.rescale-trigger.max-delay",
        None,
        (
            "How long a change waits for a checkpoint. Without it: one interval of checkpoints "
            "more than failed ones are waited for; not at all if the job takes none."
        ),
    )
    PREFERS_FEW_TASKMANAGERS: Final = flag(
        "jobmanager.adaptive-scheduler.prefer-minimal-taskmanagers",
        "true",
        (
            "Whether slots that are not needed are left together, so that whole TaskManagers "
            "become idle."
        ),
    )
    HISTORY_SIZE: Final = whole(
        "web.adaptive-scheduler.rescale-history.size",
        "0",
        "How many rescales of a job are kept.",
    )
    KEPT_STATE: Final = size(
        "penstock.elastic.kept-state",
        "128 mb",
        (
            "How much of the state that its subtasks write for a planned change a TaskManager "
            "keeps in memory. Subtasks of the next generation take it from there; the rest from "
            "the checkpoint directory. It is kept until the next checkpoint is complete, at most "
            "for a minute. `0`: all state is read from the checkpoint directory."
        ),
    )


class SpeculationOptions(OptionGroup, title="Second attempts of slow subtasks"):
    """Subtasks of bounded sources that exchange nothing may be tried twice. BATCH jobs on Spark: `spark.speculation`."""

    ENABLED: Final = flag(
        "execution.batch.speculative.enabled",
        "false",
        (
            "Whether slow subtasks get a second attempt on another node. In streaming jobs without "
            "checkpoints: of vertices from a bounded source to sinks that commit."
        ),
        former_keys=("jobmanager.adaptive-batch-scheduler.speculative.enabled",),
    )
    MOST_ATTEMPTS: Final = whole(
        "execution.batch.speculative.max-concurrent-executions",
        "2",
        "How many attempts a subtask may have at once, with the first one.",
        former_keys=("jobmanager.adaptive-batch-scheduler.speculative.max-concurrent-executions",),
    )
    BLOCK_FOR: Final = duration(
        "execution.batch.speculative.block-slow-node-duration",
        "1 min",
        "How long the node of a slow subtask gets no new subtasks. `0 ms`: it gets them.",
        former_keys=("jobmanager.adaptive-batch-scheduler.speculative.block-slow-node-duration",),
    )
    CHECK_INTERVAL: Final = duration(
        "slow-task-detector.check-interval", "1 s", "Time between two searches for slow subtasks."
    )
    LOWER_BOUND: Final = duration(
        "slow-task-detector.execution-time.baseline-lower-bound",
        "1 min",
        "A subtask that runs for less is never slow.",
    )
    BASELINE_RATIO: Final = number(
        "slow-task-detector.execution-time.baseline-ratio",
        "0.75",
        "Share of the subtasks that must have finished before one can be slow, below 1.",
    )
    BASELINE_MULTIPLIER: Final = number(
        "slow-task-detector.execution-time.baseline-multiplier",
        "1.5",
        "So many times as long as the median of the finished ones is slow: above 0.",
    )
