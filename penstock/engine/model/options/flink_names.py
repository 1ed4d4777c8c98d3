"""Names of Flink's options that have no effect here. Whoever sets one has not misspelt it.

Those that programs and configuration files set, and those that are near to names of options here. Source: Flink's
option classes and configuration reference, with its former names.
"""

from collections.abc import Iterator
from typing import Any, Final

from penstock.engine.model.options import option as kinds
from penstock.engine.model.options.option import Option

_WITHOUT_EFFECT: Final = """
How long an allocated slot waits for its JobMaster.
    duration taskmanager.slot.timeout = 10 s
Connections between hosts are always TLS 1.3, with a certificate for each job.
    flag     security.ssl.internal.enabled
TaskManagers dial the driver; they are dialled only for data.
    text     taskmanager.rpc.port = 0
    whole    taskmanager.rpc.bind-port
Whether Python operators share tasks.
    flag     python.operator-chaining.enabled = true
Flink's REST server and dashboard.
    duration rest.await-leader-timeout = 30 s
    whole    rest.cache.checkpoint-statistics.size = 1000
    duration rest.cache.checkpoint-statistics.timeout = 3 s
    whole    rest.client.max-content-length = 104857600
    duration rest.connection-timeout = 15 s
    duration rest.idleness-timeout = 5 min
    text     rest.path
    text     rest.profiling.dir
    duration rest.profiling.duration-max = 5 min
    flag     rest.profiling.enabled = false
    whole    rest.profiling.history-size = 10
    duration rest.retry.delay = 3 s
    whole    rest.retry.max-attempts = 20
    whole    rest.server.numThreads = 4
    whole    rest.server.thread-priority = 5
    text     rest.url-prefix = /
Flink has it no more.
    whole    jobmanager.adaptive-scheduler.min-parallelism-increase = 1
Wait for running timers at cancellation.
    duration task.cancellation.timers.timeout = 7500 ms
Flink's shuffle mode for fine-grained resources.
    flag     fine-grained.shuffle-mode.all-blocking = false
Number of unreachable answers in a row that count as lost.
    whole    heartbeat.rpc-failure-threshold = 2
A job without JobMaster is forgotten after this.
    duration resourcemanager.job.timeout = 5 min
Slots that Flink keeps ready.
    whole    slotmanager.number-of-slots.min = 0
Larger parts of a deployment travel as blobs.
    size     blob.offload.minsize = 1 mb
Where Flink keeps execution plans in ZooKeeper.
    text     high-availability.zookeeper.path.execution-plans = /execution-plans
No JVM runs tasks here.
    flag     taskmanager.jvm-exit-on-oom = false
How often Flink announces aligned watermarks.
    duration pipeline.watermark-alignment.update-interval = 1 s
PyFlink's Python workers.
    text     python.client.executable = python
    text     python.execution-mode = process
    whole    python.fn-execution.bundle.size = 1000
    whole    python.fn-execution.bundle.time = 1000
    flag     python.fn-execution.memory.managed = true
    whole    python.map-state.iterate-response-batch-size = 1000
    whole    python.map-state.read-cache-size = 1000
    whole    python.map-state.write-cache-size = 1000
    flag     python.profile.enabled = false
    text     python.pythonpath
    whole    python.state.cache-size = 1000
    flag     python.systemenv.enabled = true
Flink's Java pipelines.
    texts    pipeline.cached-files
    texts    pipeline.classpaths
    flag     pipeline.force-kryo-avro
    texts    pipeline.jars
    pairs    pipeline.jobvertex-parallelism-overrides
    texts    pipeline.serialization-config
    text     pipeline.vertex-description-mode = TREE
    flag     pipeline.vertex-name-include-index-prefix = false
Slow subtasks of BATCH jobs: Spark decides, by `spark.speculation`.
    duration execution.batch.speculative.block-slow-node-duration = 1 min
    flag     execution.batch.speculative.enabled = false
    whole    execution.batch.speculative.max-concurrent-executions = 2
    duration slow-task-detector.check-interval = 1 s
    duration slow-task-detector.execution-time.baseline-lower-bound = 1 min
    number   slow-task-detector.execution-time.baseline-multiplier = 1.5
    number   slow-task-detector.execution-time.baseline-ratio = 0.75
Flink's blocking shuffles and sorts.
    text     execution.batch-shuffle-mode = ALL_EXCHANGES_BLOCKING
    size     execution.sort-keyed-partition.memory = 128 mb
    size     execution.sort-partition.memory = 128 mb
    whole    taskmanager.network.sort-shuffle.min-buffers = 512
    whole    taskmanager.network.sort-shuffle.min-parallelism = 1
Flink's checkpoint storage.
    flag     execution.checkpointing.cleaner.parallel-mode = true
    flag     execution.checkpointing.create-subdir = true
    flag     execution.checkpointing.file-merging.across-checkpoint-boundary = false
    flag     execution.checkpointing.file-merging.enabled = false
    size     execution.checkpointing.file-merging.max-file-size = 32 mb
    number   execution.checkpointing.file-merging.max-space-amplification = 2.0
    flag     execution.checkpointing.file-merging.pool-blocking = false
    duration execution.checkpointing.interval-during-backlog
    text     execution.checkpointing.local-backup.dirs
    flag     execution.checkpointing.local-backup.enabled = false
    text     execution.checkpointing.storage
    flag     execution.checkpointing.unaligned.interruptible-timers.enabled = false
    whole    execution.checkpointing.unaligned.max-subtasks-per-channel-state-file = 5
    whole    execution.checkpointing.write-buffer-size = 4096
Rescales have no calendar here.
    text     job.autoscaler.excluded.periods
Memory of Java processes.
    flag     job.autoscaler.memory.tuning.enabled = false
    number   job.autoscaler.memory.tuning.overhead = 0.2
    flag     job.autoscaler.memory.tuning.maximize-managed-memory = false
    flag     job.autoscaler.memory.tuning.scale-down-compensation.enabled = true
Registration of Flink's processes.
    duration taskmanager.registration.timeout = 5 min
    duration cluster.registration.initial-timeout = 100 ms
    duration cluster.registration.max-timeout = 30 s
    duration cluster.registration.error-delay = 10 s
    duration cluster.registration.refused-registration-delay = 30 s
Recovery of BATCH jobs by another master.
    flag     execution.batch.job-recovery.enabled = false
    duration execution.batch.job-recovery.previous-worker.recovery.timeout = 30 s
    duration execution.batch.job-recovery.snapshot.min-pause = 3 min
Pauses in which Flink's ResourceManager collects requests.
    duration slot.request.max-interval = 20 ms
    duration slotmanager.requirement-check.delay = 50 ms
    duration slotmanager.declare-needed-resource.delay = 50 ms
"""
"""Subjects, and below each its options: kind, key, default."""


def _options() -> Iterator[tuple[Option[Any], str]]:
    subject = ""
    for line in _WITHOUT_EFFECT.strip().splitlines():
        if not line.startswith(" "):
            subject = line
            continue
        kind, key, *default = line.split(maxsplit=2)
        text = default[0].removeprefix("= ") if default else None
        yield Option(key, getattr(kinds, kind), text, is_used=False), subject


WITHOUT_EFFECT: Final = dict(_options())
"""Options that are read, checked and listed, and what each means in Flink. No code reads them."""

FLINK_NAMES: Final[frozenset[str]] = frozenset(
    prefix + name
    for prefix, names in {
        "execution.checkpointing.": """
            approximate-local-recovery during-recovery.enabled file-merging.max-subtasks-per-file
            prefer-checkpoint-for-recovery recover-without-channel-state.checkpoint-id
            unaligned.recover-output-on-downstream.enabled""",
        "execution.state-recovery.": """
            approximate-local-recovery without-channel-state.checkpoint-id""",
        "state.": """
            backend.async backend.changelog.enabled backend.changelog.max-failures-allowed
            backend.changelog.periodic-materialize.enabled
            backend.changelog.periodic-materialize.interval backend.changelog.storage
            backend.fs.write-buffer-size backend.latency-track.history-size
            backend.latency-track.keyed-state-enabled backend.latency-track.sample-interval
            backend.latency-track.state-name-as-variable changelog.dstl.dfs.base-path
            changelog.enabled changelog.max-failures-allowed changelog.periodic-materialize.enabled
            changelog.periodic-materialize.interval changelog.storage checkpoint-storage
            checkpoint.cleaner.parallel-mode checkpoints.create-subdir latency-track.history-size
            latency-track.keyed-state-enabled latency-track.sample-interval
            latency-track.state-name-as-variable size-track.history-size
            size-track.keyed-state-enabled size-track.sample-interval
            size-track.state-name-as-variable storage.fs.write-buffer-size""",
        "state.backend.rocksdb.": """
            block.blocksize block.cache-size block.metadata-blocksize bloom-filter.bits-per-key
            bloom-filter.block-based-mode checkpoint.transfer.thread.num
            compaction.level.max-size-level-base compaction.level.target-file-size-base
            compaction.level.use-dynamic-size compaction.style compression.per.level files.open
            incremental-restore-async-compact-after-rescale localdir log.dir log.file-num log.level
            log.max-file-size manual-compaction.min-interval memory.fixed-per-tm
            memory.high-prio-pool-ratio memory.managed memory.partitioned-index-filters
            memory.write-buffer-ratio options-factory predefined-options
            rescaling.use-delete-files-in-range restore-overlap-fraction-threshold thread.num
            timer-service.cache-size ttl.compaction.filter.enabled use-bloom-filter
            use-ingest-db-restore-mode write-batch-size writebuffer.count
            writebuffer.number-to-merge writebuffer.size""",
        "high-availability.": """
            jobmanager.port kubernetes.leader-election.lease-duration
            kubernetes.leader-election.renew-deadline kubernetes.leader-election.retry-period
            zookeeper.client.acl zookeeper.client.authorization zookeeper.client.ensemble-tracker
            zookeeper.client.max-close-wait zookeeper.client.max-retry-attempts
            zookeeper.client.max-retry-wait zookeeper.client.retry-wait
            zookeeper.client.simulated-session-expiration-percent
            zookeeper.client.tolerate-suspended-connections zookeeper.path.applications
            zookeeper.path.checkpoint-counter zookeeper.path.checkpoints zookeeper.path.jobgraphs
            zookeeper.path.latch zookeeper.path.leader zookeeper.path.running-registry""",
        "job-result-store.": "delete-on-commit storage-path",
        "application-result-store.": "delete-on-commit storage-path",
        "execution.": """
            async-state.active-buffer-size async-state.active-buffer-timeout
            async-state.total-buffer-size job-listeners job-status-changed-listeners
            shutdown-on-application-finish submit-failed-job-on-application-error""",
        "jobmanager.": """
            adaptive-batch-scheduler.speculative.block-slow-node-duration
            adaptive-batch-scheduler.speculative.enabled
            adaptive-batch-scheduler.speculative.max-concurrent-executions
            adaptive-scheduler.scaling-interval.max failure-enrichers future-pool.size heap.size
            io-pool.size memory.enable-jvm-direct-memory-limit memory.flink.size memory.heap.size
            memory.jvm-metaspace.size memory.jvm-overhead.fraction memory.jvm-overhead.max
            memory.jvm-overhead.min memory.off-heap.size memory.process.size resource-id
            web.access-control-allow-origin web.history web.tmpdir web.upload.dir""",
        "taskmanager.": """
            cpu.cores data.ssl.enabled debug.memory.log debug.memory.log-interval
            debug.memory.logIntervalMs debug.memory.startLogThread heap.size
            memory.framework.heap.size memory.framework.off-heap.batch-shuffle.size
            memory.framework.off-heap.size memory.jvm-metaspace.size memory.jvm-overhead.fraction
            memory.jvm-overhead.max memory.jvm-overhead.min memory.managed.consumer-weights
            memory.managed.fraction memory.managed.size memory.size memory.starting-segment-size
            memory.task.heap.size memory.task.off-heap.size net.client.connectTimeoutSec
            network.bind-policy network.netty.client.connectTimeoutSec network.netty.num-arenas
            network.netty.sendReceiveBufferSize network.netty.transport
            network.tcp-connection.enable-reuse-across-jobs resource-id""",
        "jobstore.": "cache-size type",
        "historyserver.": """
            archive.clean-expired-applications archive.clean-expired-jobs
            archive.retained-applications archive.retained-ttl log.jobmanager.url-pattern
            log.taskmanager.url-pattern web.ssl.enabled web.tmpdir""",
        "metrics.": "internal.query-service.port internal.query-service.thread-priority",
        "web.": """
            access-control-allow-origin address history log.path submit.enable timeout tmpdir
            upload.dir""",
        "security.ssl.": """
            algorithms close-notify-flush-timeout handshake-timeout internal.cert.fingerprint
            internal.close-notify-flush-timeout internal.handshake-timeout internal.key-password
            internal.keystore internal.keystore-password internal.keystore-type
            internal.session-cache-size internal.session-timeout internal.truststore
            internal.truststore-password internal.truststore-type key-password keystore
            keystore-password protocol provider rest.authentication-enabled rest.cert.fingerprint
            rest.keystore-password rest.keystore-type rest.truststore rest.truststore-password
            rest.truststore-type rest.verify-hostname session-cache-size session-timeout truststore
            truststore-password verify-hostname""",
        "client.": "retry-period timeout",
        "env.": """
            hadoop.conf.dir java.default-opts.jobmanager java.default-opts.taskmanager java.home
            java.opts java.opts.all java.opts.jobmanager java.opts.taskmanager pid.dir""",
        "cluster.": "id io-pool.size processes.halt-on-fatal-error uncaught-exception-handling",
        "table.": """
            exec.mini-batch.enabled exec.mini-batch.size exec.resource.default-parallelism
            exec.state.ttl local-time-zone""",
        "": """
            akka.client.timeout classloader.resolve-order fs.default-scheme
            local.number-resourcemanager queryable-state.enable retry-strategy
            yarn.heartbeat.interval""",
    }.items()
    for name in names.split()
)
"""All others."""
