"""Options of Flink that programs set and that have no effect here. They are read, checked and listed.

No code reads them, so they have no names. Source: Flink's option classes.
"""

from typing import Any, Final, TypeAlias

from penstock.model.options.option import (
    Kind,
    Option,
    duration,
    flag,
    number,
    pairs,
    size,
    text,
    texts,
    whole,
)

_Row: TypeAlias = tuple[str, Kind[Any], str | None]

_BY_SUBJECT: Final[dict[str, tuple[_Row, ...]]] = {
    "How long an allocated slot waits for its JobMaster.": (
        ("taskmanager.slot.timeout", duration, "10 s"),
    ),
    "How long a TaskManager tries to register.": (
        ("taskmanager.registration.timeout", duration, "5 min"),
    ),
    "TaskManagers dial the driver; they are dialled only for data.": (
        ("taskmanager.rpc.port", text, "0"),
        ("taskmanager.rpc.bind-port", whole, None),
    ),
    "First wait for a registration answer.": (
        ("cluster.registration.initial-timeout", duration, "100 ms"),
    ),
    "Longest such wait.": (("cluster.registration.max-timeout", duration, "30 s"),),
    "Wait after a failed registration.": (("cluster.registration.error-delay", duration, "10 s"),),
    "Wait after a refused one.": (
        ("cluster.registration.refused-registration-delay", duration, "30 s"),
    ),
    "Whether Python operators share tasks.": (("python.operator-chaining.enabled", flag, "true"),),
    "Flink's REST server and dashboard.": (
        ("rest.await-leader-timeout", duration, "30 s"),
        ("rest.cache.checkpoint-statistics.size", whole, "1000"),
        ("rest.cache.checkpoint-statistics.timeout", duration, "3 s"),
        ("rest.client.max-content-length", whole, "104857600"),
        ("rest.connection-timeout", duration, "15 s"),
        ("rest.idleness-timeout", duration, "5 min"),
        ("rest.path", text, None),
        ("rest.profiling.dir", text, None),
        ("rest.profiling.duration-max", duration, "5 min"),
        ("rest.profiling.enabled", flag, "false"),
        ("rest.profiling.history-size", whole, "10"),
        ("rest.retry.delay", duration, "3 s"),
        ("rest.retry.max-attempts", whole, "20"),
        ("rest.server.numThreads", whole, "4"),
        ("rest.server.thread-priority", whole, "5"),
        ("rest.url-prefix", text, "/"),
    ),
    "Wait for more requests before they are declared.": (
        ("slot.request.max-interval", duration, "20 ms"),
    ),
    "Flink has it no more.": (
        ("jobmanager.adaptive-scheduler.min-parallelism-increase", whole, "1"),
    ),
    "Wait for running timers at cancellation.": (
        ("task.cancellation.timers.timeout", duration, "7500 ms"),
    ),
    "Flink's shuffle mode for fine-grained resources.": (
        ("fine-grained.shuffle-mode.all-blocking", flag, "false"),
    ),
    "Number of unreachable answers in a row that count as lost.": (
        ("heartbeat.rpc-failure-threshold", whole, "2"),
    ),
    "A job without JobMaster is forgotten after this.": (
        ("resourcemanager.job.timeout", duration, "5 min"),
    ),
    "Wait before requirements are checked.": (
        ("slotmanager.requirement-check.delay", duration, "50 ms"),
    ),
    "Wait before workers are asked for.": (
        ("slotmanager.declare-needed-resource.delay", duration, "50 ms"),
    ),
    "Slots that Flink keeps ready.": (("slotmanager.number-of-slots.min", whole, "0"),),
    "Larger parts of a deployment travel as blobs.": (("blob.offload.minsize", size, "1 mb"),),
    "Where Flink keeps execution plans in ZooKeeper.": (
        ("high-availability.zookeeper.path.execution-plans", text, "/execution-plans"),
    ),
    "Recovery of batch jobs by another master.": (
        ("execution.batch.job-recovery.enabled", flag, "false"),
    ),
    "Recovery of batch jobs.": (
        ("execution.batch.job-recovery.previous-worker.recovery.timeout", duration, "30 s"),
        ("execution.batch.job-recovery.snapshot.min-pause", duration, "3 min"),
    ),
    "No JVM runs tasks here.": (("taskmanager.jvm-exit-on-oom", flag, "false"),),
    "How often Flink announces aligned watermarks.": (
        ("pipeline.watermark-alignment.update-interval", duration, "1 s"),
    ),
    "PyFlink's Python workers.": (
        ("python.client.executable", text, "python"),
        ("python.execution-mode", text, "process"),
        ("python.fn-execution.bundle.size", whole, "1000"),
        ("python.fn-execution.bundle.time", whole, "1000"),
        ("python.fn-execution.memory.managed", flag, "true"),
        ("python.map-state.iterate-response-batch-size", whole, "1000"),
        ("python.map-state.read-cache-size", whole, "1000"),
        ("python.map-state.write-cache-size", whole, "1000"),
        ("python.profile.enabled", flag, "false"),
        ("python.pythonpath", text, None),
        ("python.state.cache-size", whole, "1000"),
        ("python.systemenv.enabled", flag, "true"),
    ),
    "Flink's Java pipelines.": (
        ("pipeline.cached-files", texts, None),
        ("pipeline.classpaths", texts, None),
        ("pipeline.force-kryo-avro", flag, None),
        ("pipeline.jars", texts, None),
        ("pipeline.jobvertex-parallelism-overrides", pairs, None),
        ("pipeline.serialization-config", texts, None),
        ("pipeline.vertex-description-mode", text, "TREE"),
        ("pipeline.vertex-name-include-index-prefix", flag, "false"),
    ),
    "Flink's blocking shuffles and sorts.": (
        ("execution.batch-shuffle-mode", text, "ALL_EXCHANGES_BLOCKING"),
        ("execution.sort-keyed-partition.memory", size, "128 mb"),
        ("execution.sort-partition.memory", size, "128 mb"),
    ),
    "Flink's checkpoint storage.": (
        ("execution.checkpointing.cleaner.parallel-mode", flag, "true"),
        ("execution.checkpointing.create-subdir", flag, "true"),
        ("execution.checkpointing.file-merging.across-checkpoint-boundary", flag, "false"),
        ("execution.checkpointing.file-merging.enabled", flag, "false"),
        ("execution.checkpointing.file-merging.max-file-size", size, "32 mb"),
        ("execution.checkpointing.file-merging.max-space-amplification", number, "2.0"),
        ("execution.checkpointing.file-merging.pool-blocking", flag, "false"),
        ("execution.checkpointing.interval-during-backlog", duration, None),
        ("execution.checkpointing.local-backup.dirs", text, None),
        ("execution.checkpointing.local-backup.enabled", flag, "false"),
        ("execution.checkpointing.storage", text, None),
        ("execution.checkpointing.unaligned.forced", flag, "false"),
        ("execution.checkpointing.unaligned.interruptible-timers.enabled", flag, "false"),
        ("execution.checkpointing.unaligned.max-subtasks-per-channel-state-file", whole, "5"),
        ("execution.checkpointing.write-buffer-size", whole, "4096"),
    ),
}

WITHOUT_EFFECT: Final[tuple[Option[Any], ...]] = tuple(
    Option(key, kind, default, doc, is_used=False)
    for doc, rows in _BY_SUBJECT.items()
    for key, kind, default in rows
)
UNALIGNED_FORCED: Final = next(
    one for one in WITHOUT_EFFECT if one.key == "execution.checkpointing.unaligned.forced"
)
"""A setter of PyFlink sets it."""
