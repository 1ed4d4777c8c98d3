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
        """force-unaligned id-of-ignored-in-flight-data prefer-checkpoint-for-recovery
        recover-without-channel-state.checkpoint-id""",
    ),
    *_family(
        "state.",
        """backend.async backend.changelog.enabled backend.changelog.max-failures-allowed
        backend.changelog.storage backend.changelog.periodic-materialize.enabled
        backend.changelog.periodic-materialize.interval backend.fs.checkpointdir
        backend.fs.memory-threshold backend.fs.write-buffer-size
        backend.latency-track.history-size backend.latency-track.keyed-state-enabled
        backend.latency-track.sample-interval
        backend.latency-track.state-name-as-variable changelog.dstl.dfs.base-path
        changelog.enabled changelog.max-failures-allowed
        changelog.periodic-materialize.enabled changelog.periodic-materialize.interval
        changelog.storage checkpoint-storage checkpoint.cleaner.parallel-mode
        checkpoints.create-subdir latency-track.history-size
        latency-track.keyed-state-enabled latency-track.sample-interval
        latency-track.state-name-as-variable size-track.keyed-state-enabled
        size-track.sample-interval storage.fs.write-buffer-size""",
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
        zookeeper.client.max-retry-attempts zookeeper.client.retry-wait
        zookeeper.client.tolerate-suspended-connections
        zookeeper.path.checkpoint-counter zookeeper.path.checkpoints
        zookeeper.path.jobgraphs zookeeper.path.latch zookeeper.path.leader
        zookeeper.path.running-registry""",
    ),
    *_family("job-result-store.", "delete-on-commit storage-path"),
    *_family(
        "cleanup-strategy.",
        "exponential-delay.attempts fixed-delay.attempts fixed-delay.delay type",
    ),
    *_family(
        "execution.",
        """attached job-listeners job-status-changed-listeners
        shutdown-on-application-finish shutdown-on-attached-exit
        submit-failed-job-on-application-error target async-state.buffer-size
        async-state.enabled async-state.in-flight-records-limit""",
    ),
    *_family(
        "jobmanager.",
        """archive.fs.dir failure-enrichers future-pool.size heap.size io-pool.size
        memory.enable-jvm-direct-memory-limit memory.flink.size memory.heap.size
        memory.jvm-metaspace.size memory.jvm-overhead.fraction memory.jvm-overhead.max
        memory.jvm-overhead.min memory.off-heap.size memory.process.size
        persistent-cache.on-disk resource-id""",
    ),
    *_family(
        "taskmanager.",
        """cpu.cores data.ssl.enabled debug.memory.log debug.memory.log-interval heap.size
        log.path memory.framework.heap.size memory.framework.off-heap.size
        memory.jvm-metaspace.size memory.jvm-overhead.fraction memory.jvm-overhead.max
        memory.jvm-overhead.min memory.managed.consumer-weights memory.managed.fraction
        memory.managed.size memory.task.heap.size memory.task.off-heap.size
        network.bind-policy network.detailed-metrics
        network.netty.client.connectTimeoutSec network.netty.num-arenas
        network.netty.sendReceiveBufferSize network.netty.transport
        network.tcp-connection.enable-reuse-across-jobs resource-id""",
    ),
    *_family("jobstore.", "cache-size expiration-time max-capacity type"),
    *_family(
        "metrics.",
        """busy-time.aggregator fetcher.update-interval internal.query-service.port
        internal.query-service.thread-priority job.status.enable latency.history-size
        reporters scope.delimiter scope.jm scope.jm-job scope.jm-operator scope.operator
        scope.task scope.tm scope.tm-job system-resource
        system-resource-probing-interval""",
    ),
    *_family(
        "web.",
        """access-control-allow-origin address cancel.enable history log.path port
        refresh-interval rescale.enable submit.enable timeout tmpdir upload.dir""",
    ),
    *_family("client.", "heartbeat.interval heartbeat.timeout retry-period timeout"),
    *_family(
        "env.",
        "hadoop.conf.dir java.home java.opts.all java.opts.taskmanager log.dir "
        "log.level log.max pid.dir",
    ),
    *_family(
        "cluster.", "id io-pool.size processes.halt-on-fatal-error uncaught-exception-handling"
    ),
    *_family(
        "table.",
        "exec.mini-batch.enabled exec.resource.default-parallelism exec.state.ttl local-time-zone",
    ),
    *_family(
        "",
        "classloader.resolve-order fs.default-scheme local.number-resourcemanager "
        "queryable-state.enable",
    ),
))
