"""Names of Flink's options that are no options here. Whoever sets one has not misspelt it; it has no effect.

Only names, and not all of Flink's: those that programs and configuration files set, and those that are near to names of
options here. Source: Flink's configuration reference, its present and its former names.
"""

from __future__ import annotations

from typing import Final


def _family(prefix: str, names: str) -> tuple[str, ...]:
    return tuple(prefix + name for name in names.split())


FLINK_NAMES: Final[frozenset[str]] = frozenset((
    *_family(
        "execution.checkpointing.",
        """approximate-local-recovery during-recovery.enabled
        file-merging.max-subtasks-per-file prefer-checkpoint-for-recovery
        recover-without-channel-state.checkpoint-id
        unaligned.recover-output-on-downstream.enabled""",
    ),
    *_family(
        "execution.state-recovery.",
        "approximate-local-recovery without-channel-state.checkpoint-id",
    ),
    *_family(
        "state.",
        """backend.async backend.changelog.enabled backend.changelog.max-failures-allowed
        backend.changelog.storage backend.changelog.periodic-materialize.enabled
        backend.changelog.periodic-materialize.interval
        backend.fs.write-buffer-size
        backend.latency-track.history-size backend.latency-track.keyed-state-enabled
        backend.latency-track.sample-interval
        backend.latency-track.state-name-as-variable changelog.dstl.dfs.base-path
        changelog.enabled changelog.max-failures-allowed
        changelog.periodic-materialize.enabled changelog.periodic-materialize.interval
        changelog.storage checkpoint-storage checkpoint.cleaner.parallel-mode
        checkpoints.create-subdir latency-track.history-size
        latency-track.keyed-state-enabled latency-track.sample-interval
        latency-track.state-name-as-variable size-track.history-size
        size-track.keyed-state-enabled size-track.sample-interval
        size-track.state-name-as-variable storage.fs.write-buffer-size""",
    ),
    *_family(
        "state.backend.rocksdb.",
        """block.blocksize block.cache-size block.metadata-blocksize
        bloom-filter.bits-per-key bloom-filter.block-based-mode
        checkpoint.transfer.thread.num compaction.level.max-size-level-base
        compaction.level.target-file-size-base compaction.level.use-dynamic-size
        compaction.style compression.per.level files.open
        incremental-restore-async-compact-after-rescale localdir log.dir log.file-num
        log.level log.max-file-size manual-compaction.min-interval memory.fixed-per-tm
        memory.high-prio-pool-ratio memory.managed memory.partitioned-index-filters
        memory.write-buffer-ratio options-factory predefined-options
        rescaling.use-delete-files-in-range restore-overlap-fraction-threshold
        thread.num timer-service.cache-size ttl.compaction.filter.enabled
        use-bloom-filter use-ingest-db-restore-mode write-batch-size writebuffer.count
        writebuffer.number-to-merge writebuffer.size""",
    ),
    *_family(
        "high-availability.",
        """jobmanager.port kubernetes.leader-election.lease-duration
        kubernetes.leader-election.renew-deadline
        kubernetes.leader-election.retry-period zookeeper.client.acl
        zookeeper.client.authorization zookeeper.client.ensemble-tracker
        zookeeper.client.max-close-wait zookeeper.client.max-retry-attempts
        zookeeper.client.max-retry-wait zookeeper.client.retry-wait
        zookeeper.client.simulated-session-expiration-percent
        zookeeper.client.tolerate-suspended-connections zookeeper.path.applications
        zookeeper.path.checkpoint-counter zookeeper.path.checkpoints
        zookeeper.path.jobgraphs zookeeper.path.latch zookeeper.path.leader
        zookeeper.path.running-registry""",
    ),
    *_family("job-result-store.", "delete-on-commit storage-path"),
    *_family("application-result-store.", "delete-on-commit storage-path"),
    *_family(
        "execution.",
        """job-listeners job-status-changed-listeners
        shutdown-on-application-finish
        submit-failed-job-on-application-error async-state.active-buffer-size
        async-state.active-buffer-timeout async-state.total-buffer-size""",
    ),
    *_family(
        "jobmanager.",
        """failure-enrichers future-pool.size heap.size io-pool.size
        memory.enable-jvm-direct-memory-limit memory.flink.size memory.heap.size
        memory.jvm-metaspace.size memory.jvm-overhead.fraction memory.jvm-overhead.max
        memory.jvm-overhead.min memory.off-heap.size memory.process.size
        adaptive-scheduler.scaling-interval.max resource-id web.access-control-allow-origin
        web.history web.tmpdir
        web.upload.dir""",
    ),
    *_family(
        "taskmanager.",
        """cpu.cores data.ssl.enabled debug.memory.log debug.memory.log-interval
        debug.memory.logIntervalMs debug.memory.startLogThread heap.size
        memory.framework.heap.size memory.framework.off-heap.batch-shuffle.size
        memory.framework.off-heap.size memory.size memory.starting-segment-size
        net.client.connectTimeoutSec
        memory.jvm-metaspace.size memory.jvm-overhead.fraction memory.jvm-overhead.max
        memory.jvm-overhead.min memory.managed.consumer-weights memory.managed.fraction
        memory.managed.size memory.task.heap.size memory.task.off-heap.size
        network.bind-policy
        network.netty.client.connectTimeoutSec network.netty.num-arenas
        network.netty.sendReceiveBufferSize network.netty.transport
        network.tcp-connection.enable-reuse-across-jobs resource-id""",
    ),
    *_family("jobstore.", "cache-size type"),
    *_family(
        "historyserver.",
        """archive.clean-expired-applications archive.clean-expired-jobs
        archive.retained-applications archive.retained-ttl log.jobmanager.url-pattern
        log.taskmanager.url-pattern web.ssl.enabled web.tmpdir""",
    ),
    *_family(
        "metrics.",
        "internal.query-service.port internal.query-service.thread-priority",
    ),
    *_family(
        "web.",
        """access-control-allow-origin address history log.path submit.enable timeout
        tmpdir upload.dir""",
    ),
    *_family(
        "security.ssl.",
        """algorithms close-notify-flush-timeout handshake-timeout internal.cert.fingerprint
        internal.close-notify-flush-timeout internal.handshake-timeout internal.key-password
        internal.keystore internal.keystore-password internal.keystore-type
        internal.session-cache-size internal.session-timeout internal.truststore
        internal.truststore-password internal.truststore-type key-password keystore
        keystore-password protocol provider rest.authentication-enabled rest.cert.fingerprint
        rest.keystore-password rest.keystore-type rest.truststore rest.truststore-password
        rest.truststore-type rest.verify-hostname session-cache-size session-timeout
        truststore truststore-password verify-hostname""",
    ),
    *_family("client.", "retry-period timeout"),
    *_family(
        "env.",
        "hadoop.conf.dir java.default-opts.jobmanager "
        "java.default-opts.taskmanager java.home java.opts java.opts.all "
        "java.opts.jobmanager java.opts.taskmanager pid.dir",
    ),
    *_family(
        "cluster.", "id io-pool.size processes.halt-on-fatal-error uncaught-exception-handling"
    ),
    *_family(
        "table.",
        "exec.mini-batch.enabled exec.mini-batch.size exec.resource.default-parallelism "
        "exec.state.ttl local-time-zone",
    ),
    *_family(
        "",
        "akka.client.timeout classloader.resolve-order fs.default-scheme "
        "local.number-resourcemanager "
        "queryable-state.enable retry-strategy yarn.heartbeat.interval",
    ),
))
