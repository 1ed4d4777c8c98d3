"""All options by key: the settings that a user may make, what they mean, and what a key that is no option probably means.

A new file of options must be imported here, otherwise its options do not exist. A key of other software has no effect,
and that is all right. A key that looks like an option but is none was meant to do something; if that is to keep data
safe, a job without it must not run. Who sets one of Flink's options that have no effect here has not misspelt it:
`FLINK_NAMES` are those that programs and configuration files set, and those that are near to names of options here.
Source: Flink's option classes and configuration reference, with its former names; Flink ignores keys that it does not
know.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, Final

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.options import (
    autoscaler,
    checkpoints,
    cluster,
    network,
    program,
    reporters,
    rest,
    scheduling,
    task,
)
from penstock.engine.model.options import option as kinds
from penstock.engine.model.options.option import NAME, Option, OptionGroup

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


_FILES: Final = (
    program, checkpoints, scheduling, autoscaler, cluster, network, task, reporters, rest
)  # fmt: skip

_NEAR: Final = 0.82
_VERY_NEAR: Final = 0.95
"""For keys of families with more names than are listed here."""
_SAFETY: Final = (
    "execution.checkpointing",
    "execution.savepoint",
    "execution.state-recovery",
    "high-availability",
    "job-result-store",
    "restart-strategy",
    "state.backend",
    "state.checkpoint",
    "state.savepoint",
    "state.storage",
)
"""Options that decide what is left of a job's data after a failure."""
_COMMON: Final = "execution."
"""Begins the names of options that people know by the rest: `checkpointing.interval`."""
_OPEN: Final = (
    "high-availability.kubernetes.",
    "state.backend.forst.",
    "state.backend.rocksdb.",
    "state.changelog.",
)

GROUPS: Final[tuple[type[OptionGroup], ...]] = tuple(
    found
    for file in _FILES
    for found in vars(file).values()
    if isinstance(found, type)
    if issubclass(found, OptionGroup) and found.__module__ == file.__name__
)
"""In the order in which the reference page shows them."""


def _by_key(options: Iterable[Option[Any]]) -> dict[str, Option[Any]]:
    found: dict[str, Option[Any]] = {}
    for option in options:
        assert option.key not in found, f"two options are called {option.key}"
        found[option.key] = option
    return found


OPTIONS: Final[Mapping[str, Option[Any]]] = _by_key((
    *(option for group in GROUPS for option in group.options()),
    *WITHOUT_EFFECT,
))

FORMER_KEYS: Final[Mapping[str, str]] = {
    former: option.key for option in OPTIONS.values() for former in option.former_keys
} | {f"kubernetes.operator.{key}": key for key in OPTIONS if key.startswith("job.autoscaler.")}
"""Present keys by their former names (Flink's withDeprecatedKeys)."""


_OF_A_NAME: Final = [
    (re.compile(re.escape(option.key).replace(re.escape(NAME), r"([^.]+)")), option)
    for option in OPTIONS.values()
    if NAME in option.key
]


def find_option(key: str) -> Option[Any] | None:
    """The option with this key, also one for a name: `metrics.reporter.x.port`. None: there is none."""
    if key in OPTIONS:
        return OPTIONS[key]
    for pattern, option in _OF_A_NAME:
        if found := pattern.fullmatch(key):
            return option.of(found[1])
    return None


@cache
def documentation() -> Mapping[str, str]:
    """What each option means, by key: the text below its attribute."""
    found = {option.key: subject for option, subject in WITHOUT_EFFECT.items()}
    for group in GROUPS:
        (declared,) = ast.parse(inspect.getsource(group)).body
        assert isinstance(declared, ast.ClassDef)
        for one, below in pairwise(declared.body):
            match one, below:
                case ast.Assign([ast.Name(name)]), ast.Expr(ast.Constant(str(text))):
                    option: Option[Any] = getattr(group, name)
                    found[option.key] = " ".join(text.split())
                    if option.fallback is not None:
                        found[option.fallback.key] = (
                            f"Older key of {option.key}. Used when that is not set."
                        )
    return found


def option_named(key: str) -> Option[Any]:
    """The option with this key. Raises: ConfigurationError: there is none; the text names the nearest one."""
    option = OPTIONS.get(key)
    if option is None:
        near = difflib.get_close_matches(key, OPTIONS, n=1, cutoff=0.6)
        all_options = " See docs/reference/configuration.md for all options."
        hint = f" Did you mean '{near[0]}'?" if near else all_options
        raise ConfigurationError(f"there is no option '{key}'.{hint}")
    return option


@lru_cache(maxsize=1024)
def nearest(key: str) -> str | None:
    """The option that this key was probably meant to be; None: it is one of Flink's names, or like none of them."""
    if is_known(key):
        return None
    names = _names()
    cutoff = _VERY_NEAR if key.startswith(_OPEN) else _NEAR
    # Capitals, and `_` for `-`, are no other letters.
    found = difflib.get_close_matches(_plain(key), names, n=1, cutoff=cutoff)
    return names[found[0]] if found else None


@cache
def _names() -> dict[str, str]:
    """What people may have meant to write, and the option that it stands for."""
    names = [*OPTIONS, *FORMER_KEYS, *FLINK_NAMES]
    short = {
        _plain(name.removeprefix(_COMMON)): FORMER_KEYS.get(name, name)
        for name in names
        if name.startswith(_COMMON)
    }
    return short | {_plain(name): FORMER_KEYS.get(name, name) for name in names}


def _plain(key: str) -> str:
    return key.lower().replace("_", "-")


def check_spelling(key: str) -> None:
    """Raises ConfigurationError: the key is unknown, and it or the option that it resembles decides whether data is safe."""
    if is_known(key):
        return
    near = nearest(key)
    is_closed = key.startswith(_SAFETY) and not key.startswith(_OPEN)
    if is_closed or (near is not None and near.startswith(_SAFETY)):
        hint = f"Did you mean '{near}'?" if near else "See docs/reference/configuration.md."
        raise ConfigurationError(
            f"there is no option '{key}'. {hint} It looks like an option that decides whether "
            "data is safe after a failure, so it is not ignored. Correct its name, or remove it."
        )


def is_known(key: str) -> bool:
    return find_option(key) is not None or key in FORMER_KEYS or key in FLINK_NAMES
