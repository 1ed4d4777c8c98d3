"""The table of options: key, kind, default as Flink prints it, and a line of documentation.

Knows no reader; `config.py` reads it. Source: Flink's option classes (specs flink-scheduler 11,
flink-runtime 12, pyflink-api 10); differs: `penstock.*` keys are ours. `-` is no default; an
indented line continues the one before it.
"""

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """How an option's text is read. DURATION gives whole milliseconds, FINE_DURATION a float of them, MEMORY bytes."""

    DURATION = "duration"
    FINE_DURATION = "fine duration"
    MEMORY = "memory"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STR = "str"
    LIST = "list"
    MAP = "map"


USED: Final = """
penstock.task.max-step-time | fine duration | 5 ms |
    Longest stretch of user code between two looks at the mailbox.
penstock.exchange.frame-size | memory | 1 mb |
    Largest frame between two tasks; one credit is one frame.
penstock.exchange.switch-interval | fine duration | 1 ms | sys.setswitchinterval of a TaskManager.
state.backend.type | str | hashmap |
    Keyed state: hashmap (objects in memory), or rocksdb (on the TaskManagers' disks; needs the package rocksdict).
state.backend.rocksdb.timer-service.factory | str | ROCKSDB |
    Timers with RocksDB: ROCKSDB (on disk, beside the state), or HEAP (in memory: faster, as long as they fit).
state.backend.rocksdb.memory.fixed-per-slot | memory | 128 mb | Block cache and write buffers of a slot's RocksDBs.
penstock.exchange.exclusive-buffers-per-gate | int | 0 |
    A gate of few channels gives each an equal part of so many buffers, where that is more than buffers-per-channel.
penstock.exchange.local-sockets | bool | true |
    Linux: TaskManagers of one machine (and network namespace) exchange data over Unix sockets instead of TCP.
penstock.taskmanager.keep-core | bool | true |
    Linux: a busy TaskManager whose threads take turns (the GIL) stays on one core.
penstock.taskmanager.max | int | - | Most TaskManagers at one time; none: as many as needed.
penstock.taskmanager.start-timeout | duration | 2 min | How long a TaskManager may take to register.
penstock.jobmanager.silence-timeout | duration | 50 s |
    A TaskManager that hears nothing of its JobManager for so long ends.
penstock.taskmanager.frozen-timeout | duration | 30 s |
    A TaskManager in which nothing moves for so long (a C call may hold the GIL) is replaced.
penstock.task.check-threads | bool | false |
    Debugging: an error when another thread than a task's own touches its state. Always so on a MiniCluster.
penstock.task.slow-call | duration | 10 s |
    A function that has not come back for so long is named, with its stack; 0: never.
penstock.batch.combine | bool | true |
    Whether keyed reduces of BATCH jobs combine before the shuffle, where their functions are associative.
penstock.spark.master | str | - | Master of the embedded session; none: local with enough cores.
penstock.spark.cores-kept | int | 1 | Cores left for Spark jobs beside the job.
penstock.spark.log-file | str | - | Where Spark's log goes; none: a file in the temporary directory.
penstock.resources.report-after | duration | 3 s |
    After so long without a slot the driver says what is missing.
penstock.resources.report-interval | duration | 30 s | How often it repeats that.
penstock.restart.infrastructure-delay | duration | 100 ms |
    Wait before the restart after a lost TaskManager.
penstock.console.progress | bool | true | Whether the driver shows progress.
penstock.console.progress-interval | duration | 1 s | How often the progress is drawn.
web.exception-history-size | int | 16 | Failures of a job that are kept, each with those beside it.
web.checkpoints.history | int | 10 | Checkpoints that have ended that a job's statistics show.
penstock.story.size | int | 1000 | State changes of a job that are kept for its story.
high-availability.type | str | NONE |
    NONE, FILE or ZOOKEEPER: another driver can take over a job whose driver is gone.
high-availability.storageDir | str | - | The directory that all these drivers share.
high-availability.cluster-id | str | /default | Only drivers with the same one find a job.
high-availability.zookeeper.quorum | str | - | ZOOKEEPER: its servers, host:port separated by commas.
high-availability.zookeeper.path.root | str | /flink | ZOOKEEPER: below this lies all that is kept there.
high-availability.zookeeper.client.session-timeout | duration | 60 s | ZOOKEEPER: longest wait for an answer.
high-availability.zookeeper.client.connection-timeout | duration | 15 s | ZOOKEEPER: longest wait for a connection.
penstock.high-availability.lease-duration | duration | 5 s |
    A driver that has not renewed its lease for so long may be replaced.
penstock.high-availability.renew-interval | duration | 1 s |
    How often it is renewed; at most half of the duration.
penstock.high-availability.key-file | str | - |
    Secret that signs stored jobs; none: the directory must be the user's alone.
parallelism.default | int | - |
    Parallelism of operators that set none; none: what the cluster gives.
slot.request.timeout | duration | 5 min |
    How long a bulk of slot requests may be without a way to be served.
slot.idle.timeout | duration | 50 s | Free slots above the need are given back after this.
jobmanager.scheduler | str | Default |
    Default, or AdaptiveBatch: BATCH jobs go subtask by subtask. Adaptive is taken as Default.
jobmanager.partition.hybrid.partition-data-consume-constraint | str | - |
    When AdaptiveBatch may read hybrid results; none: UNFINISHED_PRODUCERS.
jobmanager.partition.release-during-job-execution | bool | true |
    Remove blocking results as soon as all that read them have finished, not at the job's end.
jobmanager.execution.failover-strategy | str | region | region or full.
jobmanager.execution.attempts-history-size | int | 16 | Past attempts kept per subtask.
jobmanager.rpc.address | str | - | Where TaskManagers dial this driver; none: spark.driver.host.
jobmanager.rpc.port | str | 0 |
    Its port: one, or ranges to choose from (50100-50110,50200). Each job has one of its own; 0: any that is free.
jobmanager.rpc.bind-port | str | - | Where it listens, if that is another port (behind a NAT); none: jobmanager.rpc.port.
jobmanager.bind-host | str | - | The address at which it listens; none: where Spark's own driver does.
taskmanager.host | str | - |
    Where other TaskManagers dial one: an address, or a network (10.1.0.0/16) in which each has its own; none: the address by which
    it reaches the driver.
taskmanager.bind-host | str | - | The address at which it listens; none: taskmanager.host.
taskmanager.data.port | str | 0 |
    Its port: one, or ranges to choose from, for TaskManagers may share a host; 0: any that is free.
taskmanager.data.bind-port | str | - |
    Where it listens, if that is another port (behind a NAT); none: taskmanager.data.port.
taskmanager.numberOfTaskSlots | int | 1 | Slots of one TaskManager.
taskmanager.load-balance.mode | str | NONE | NONE, SLOTS, TASKS or MIN_RESOURCES.
taskmanager.memory.network | memory | 256 mb |
    What the frames between tasks may fill in one TaskManager. If it is not set, but the size of the
    TaskManager is: the fraction of that, within min and max.
taskmanager.memory.network.fraction | float | 0.1 | Share of taskmanager.memory.flink.size.
taskmanager.memory.network.min | memory | 64 mb | Least network memory.
taskmanager.memory.network.max | memory | 9223372036854775807 bytes | Most network memory.
taskmanager.memory.flink.size | memory | - | Size of a TaskManager of which that share is taken.
taskmanager.memory.process.size | memory | - | The same, where flink.size is not set.
taskmanager.memory.segment-size | memory | 32 kb |
    Least size of a network buffer; few tasks have larger ones, up to the frame size.
taskmanager.memory.min-segment-size | memory | 256 bytes | Smallest debloated buffer.
taskmanager.network.memory.buffers-per-channel | int | 2 | Exclusive buffers per remote channel.
taskmanager.network.memory.floating-buffers-per-gate | int | 8 | Buffers that channels share.
taskmanager.network.memory.max-buffers-per-channel | int | 10 |
    A task is held back when one of its subpartitions has so many buffers; at four full ones in any case.
taskmanager.network.memory.max-overdraft-buffers-per-gate | int | 5 |
    Buffers that a task without any may still take to complete a record.
taskmanager.network.memory.read-buffer.required-per-gate.max | int | - |
    Most buffers that a gate requires; none: 1000 for blocking inputs, as many as it needs for others.
taskmanager.network.request-backoff.initial | int | 100 |
    First wait before a partition is asked for again, ms.
taskmanager.network.request-backoff.max | int | 10000 | Longest such wait, ms.
taskmanager.network.partition-request-timeout | duration | 10 s |
    How long a request waits at the producer's TaskManager for its partition.
taskmanager.network.memory.buffer-debloat.enabled | bool | false |
    Smaller buffers when they take longer than the target to be worked off.
taskmanager.network.memory.buffer-debloat.period | duration | 200 ms | How often that is looked at.
taskmanager.network.memory.buffer-debloat.target | duration | 1 s |
    How long the data in flight should take.
taskmanager.network.memory.buffer-debloat.samples | int | 20 | Measurements that are averaged.
taskmanager.network.memory.buffer-debloat.threshold-percentages | int | 25 |
    Smaller changes are not announced.
taskmanager.network.blocking-shuffle.type | str | file |
    Blocking results: file, mmap (a mapped file), or auto (a file that is mapped for reading).
taskmanager.network.batch-shuffle.compression.enabled | bool | true | Compress blocking results.
taskmanager.network.compression.codec | str | LZ4 | LZ4 or ZSTD.
io.tmp.dirs | str | - |
    Directories for blocking results, separated by commas; none: the system's for temporary files.
task.cancellation.interval | duration | 30 s | Between two attempts to interrupt a cancelled task.
task.cancellation.timeout | duration | 3 min |
    A cancelled task that lives longer ends its TaskManager; 0: never.
cluster.evenly-spread-out-slots | bool | false | Old name of load-balance mode SLOTS.
execution.checkpointing.aligned-checkpoint-timeout | duration | 0 ms |
    After so long an aligned checkpoint goes on unaligned; 0: unaligned from the start.
execution.checkpointing.checkpoints-after-tasks-finish | bool | true |
    Whether checkpoints go on when some tasks have ended.
execution.checkpointing.data-inline-threshold | memory | 20 kb | State smaller than this lies in the metadata.
execution.checkpointing.dir | str | - | Where checkpoints are kept: a directory that driver and executors share.
execution.checkpointing.externalized-checkpoint-retention | str | NO_EXTERNALIZED_CHECKPOINTS |
    What stays of a job that ends: NO_EXTERNALIZED_CHECKPOINTS, DELETE_ON_CANCELLATION, RETAIN_ON_CANCELLATION.
execution.checkpointing.incremental | bool | false |
    RocksDB: of the files of a database only those are written that no earlier checkpoint has.
execution.checkpointing.interval | duration | - | Time between two checkpoints; none: only savepoints are taken.
execution.checkpointing.max-concurrent-checkpoints | int | 1 | How many may be under way at once.
execution.checkpointing.min-pause | duration | 0 ms | Least time from the end of one to the start of the next.
execution.checkpointing.mode | str | EXACTLY_ONCE | EXACTLY_ONCE or AT_LEAST_ONCE.
execution.checkpointing.num-retained | int | 1 | How many completed ones are kept.
execution.checkpointing.savepoint-dir | str | - | Where savepoints go for which no directory is named.
execution.checkpointing.timeout | duration | 10 min | One that takes longer is given up.
execution.checkpointing.tolerable-failed-checkpoints | int | 0 |
    How many may fail one after the other before the job does.
execution.checkpointing.unaligned.enabled | bool | false |
    Barriers overtake data in flight, which becomes part of the checkpoint.
execution.state-recovery.ignore-unclaimed-state | bool | false | Start from a savepoint without the state that no operator claims.
execution.state-recovery.path | str | - | Begin with this savepoint, or retained checkpoint.
execution.state-recovery.claim-mode | str | NO_CLAIM |
    CLAIM: what the job began with is its own, and goes when it is not needed any more. NO_CLAIM: it stays.
execution.savepoint.path | str | - | Old name of execution.state-recovery.path.
execution.savepoint.ignore-unclaimed-state | bool | false |
    Old name of execution.state-recovery.ignore-unclaimed-state.
execution.savepoint-restore-mode | str | NO_CLAIM | Old name of execution.state-recovery.claim-mode.
state.checkpoints.dir | str | - | Old name of execution.checkpointing.dir.
state.checkpoints.num-retained | int | 1 | Old name of execution.checkpointing.num-retained.
state.savepoints.dir | str | - | Old name of execution.checkpointing.savepoint-dir.
state.storage.fs.memory-threshold | memory | 20 kb |
    Old name of execution.checkpointing.data-inline-threshold.
execution.state-recovery.from-local | bool | false |
    State is kept on the TaskManagers too, and tasks that start again prefer the slots that they had.
state.backend.incremental | bool | false | Old name of execution.checkpointing.incremental.
state.backend.local-recovery | bool | false | Old name of execution.state-recovery.from-local.
heartbeat.interval | duration | 10 s | Between two heartbeats.
heartbeat.timeout | duration | 50 s | Silence after which a peer counts as lost.
resourcemanager.taskmanager-timeout | duration | 30 s | An idle TaskManager is released after this.
resourcemanager.taskmanager-registration.timeout | duration | 5 min |
    How long a requested TaskManager may take.
resourcemanager.start-worker.max-failure-rate | float | 10.0 |
    Failed starts per minute before a pause.
resourcemanager.start-worker.retry-interval | duration | 3 s | That pause.
slotmanager.number-of-slots.max | int | 2147483647 | Most slots at one time.
slotmanager.redundant-taskmanager-num | int | 0 | TaskManagers to keep ready beyond the need.
python.files | str | - | Files and directories for sys.path of the tasks.
python.archives | str | - | Archives to unpack beside the tasks, as a.zip#name,b.zip.
python.requirements | str | - | A requirements file for the tasks, as file#folder of packages.
pipeline.auto-watermark-interval | duration | 200 ms | How often periodic watermarks are made.
pipeline.watermark-alignment.allow-unaligned-source-splits | bool | false |
    Whether sources whose readers cannot pause single splits may be in an alignment group.
metrics.latency.interval | duration | 0 ms | How often sources send latency markers; 0: never.
metrics.latency.granularity | str | operator |
    What has a histogram of its own: single, operator (each source), subtask (of each source).
pipeline.fixed-job-id | str | - | The job's id, 32 hexadecimal digits; none: a random one.
pipeline.global-job-parameters | map | - | Pairs that every function can read from its context.
pipeline.max-parallelism | int | -1 | Key groups of operators that set none; -1: derived.
pipeline.name | str | - | The job's name.
pipeline.operator-chaining.enabled | bool | true | Whether operators share tasks.
execution.buffer-timeout.enabled | bool | true |
    false: buffers are sent only when full or when input pauses.
execution.buffer-timeout.interval | duration | 100 ms |
    Longest time that records wait for a fuller buffer.
execution.runtime-mode | str | STREAMING | STREAMING, BATCH or AUTOMATIC.
execution.sorted-inputs.memory | memory | 128 mb |
    In runtime mode BATCH: bytes of its input that a keyed subtask holds; more goes to disk.
restart-strategy.type | str | - |
    none, fixed-delay, failure-rate or exponential-delay; with checkpoints the last if none is named.
restart-strategy.fixed-delay.attempts | int | 1 | How many failures may be followed by a restart.
restart-strategy.fixed-delay.delay | duration | 1 s | Wait before a restart.
restart-strategy.exponential-delay.attempts-before-reset-backoff | int | infinite |
    Restarts before giving up.
restart-strategy.exponential-delay.backoff-multiplier | float | 1.5 |
    Growth of the wait per restart.
restart-strategy.exponential-delay.initial-backoff | duration | 1 s | First wait.
restart-strategy.exponential-delay.jitter-factor | float | 0.1 | Random share of the wait.
restart-strategy.exponential-delay.max-backoff | duration | 1 min | Longest wait.
restart-strategy.exponential-delay.reset-backoff-threshold | duration | 1 h |
    Quiet time after which the wait starts anew.
restart-strategy.failure-rate.delay | duration | 1 s | Wait before a restart.
restart-strategy.failure-rate.failure-rate-interval | duration | 1 min |
    Interval in which failures are counted.
restart-strategy.failure-rate.max-failures-per-interval | int | 1 | Failures allowed per interval.
"""

# Accepted because Flink programs set them; they change nothing here.
# A line that starts with `=` says what the lines below it are.
IGNORED: Final = """
= How long an allocated slot waits for its JobMaster.
taskmanager.slot.timeout | duration | 10 s
= How long a TaskManager tries to register.
taskmanager.registration.timeout | duration | 5 min
= TaskManagers dial the driver; nobody dials them but for data.
taskmanager.rpc.port | str | 0
taskmanager.rpc.bind-port | int | -
= First wait for a registration answer.
cluster.registration.initial-timeout | duration | 100 ms
= Longest such wait.
cluster.registration.max-timeout | duration | 30 s
= Wait after a failed registration.
cluster.registration.error-delay | duration | 10 s
= Wait after a refused one.
cluster.registration.refused-registration-delay | duration | 30 s
= Whether Python operators share tasks.
python.operator-chaining.enabled | bool | true
= The dashboard and REST API: address.
rest.address | str | -
= The dashboard and REST API: bind-address.
rest.bind-address | str | -
= The dashboard and REST API: bind-port.
rest.bind-port | str | 8081
= The dashboard and REST API: port.
rest.port | int | 8081
= Wait for more requests before they are declared.
slot.request.max-interval | duration | 20 ms
= reactive: use all slots.
scheduler-mode | str | -
= Adaptive scheduler only.
jobmanager.adaptive-scheduler.resource-wait-timeout | duration | 5 min
jobmanager.adaptive-scheduler.submission.resource-wait-timeout | duration | 5 min
jobmanager.adaptive-scheduler.resource-stabilization-timeout | duration | 10 s
jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout | duration | 10 s
jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling | duration | 30 s
jobmanager.adaptive-scheduler.scaling-interval.min | duration | 30 s
jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout | duration | 1 min
jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures | int | 2
jobmanager.adaptive-scheduler.rescale-trigger.max-delay | duration | -
jobmanager.adaptive-scheduler.min-parallelism-increase | int | 1
jobmanager.adaptive-scheduler.prefer-minimal-taskmanagers | bool | true
= Wait for running timers at cancellation.
task.cancellation.timers.timeout | duration | 7500 ms
= Fine-grained resources only.
fine-grained.shuffle-mode.all-blocking | bool | false
= Unreachable answers in a row that count as lost.
heartbeat.rpc-failure-threshold | int | 2
= A job without JobMaster is forgotten after this.
resourcemanager.job.timeout | duration | 5 min
= Wait before requirements are checked.
slotmanager.requirement-check.delay | duration | 50 ms
= Wait before workers are asked for.
slotmanager.declare-needed-resource.delay | duration | 50 ms
= Slots to keep ready.
slotmanager.number-of-slots.min | int | 0
= Larger parts of a deployment travel as blobs.
blob.offload.minsize | memory | 1 mb
= Coordination store only.
high-availability.zookeeper.path.execution-plans | str | /execution-plans
= Adaptive batch only.
execution.batch.adaptive.auto-parallelism.enabled | bool | true
execution.batch.adaptive.auto-parallelism.min-parallelism | int | 1
execution.batch.adaptive.auto-parallelism.max-parallelism | int | 128
execution.batch.adaptive.auto-parallelism.default-source-parallelism | int | -
execution.batch.adaptive.auto-parallelism.avg-data-volume-per-task | memory | 16 mb
= Second attempts of slow tasks.
execution.batch.speculative.enabled | bool | false
execution.batch.speculative.max-concurrent-executions | int | 2
execution.batch.speculative.block-slow-node-duration | duration | 1 min
slow-task-detector.check-interval | duration | 1 s
slow-task-detector.execution-time.baseline-lower-bound | duration | 1 min
slow-task-detector.execution-time.baseline-ratio | float | 0.75
slow-task-detector.execution-time.baseline-multiplier | float | 1.5
= Recovery of batch jobs by another master.
execution.batch.job-recovery.enabled | bool | false
= Recovery of batch jobs.
execution.batch.job-recovery.previous-worker.recovery.timeout | duration | 30 s
execution.batch.job-recovery.snapshot.min-pause | duration | 3 min
= Sort shuffle only.
taskmanager.network.sort-shuffle.min-parallelism | int | 1
taskmanager.network.sort-shuffle.min-buffers | int | 512
= No JVM runs tasks here.
taskmanager.jvm-exit-on-oom | bool | false
= Watermark alignment.
pipeline.watermark-alignment.update-interval | duration | 1 s
= Python: accepted for portability.
python.client.executable | str | python
python.executable | str | python
python.execution-mode | str | process
python.fn-execution.arrow.batch.size | int | 1000
python.fn-execution.bundle.size | int | 1000
python.fn-execution.bundle.time | int | 1000
python.fn-execution.memory.managed | bool | true
python.map-state.iterate-response-batch-size | int | 1000
python.map-state.read-cache-size | int | 1000
python.map-state.write-cache-size | int | 1000
python.metric.enabled | bool | true
python.profile.enabled | bool | false
python.pythonpath | str | -
python.state.cache-size | int | 1000
python.systemenv.enabled | bool | true
= Pipeline: accepted for portability.
pipeline.auto-generate-uids | bool | true
pipeline.cached-files | list | -
pipeline.classpaths | list | -
pipeline.closure-cleaner-level | str | RECURSIVE
pipeline.force-avro | bool | false
pipeline.force-kryo | bool | false
pipeline.force-kryo-avro | bool | -
pipeline.generic-types | bool | true
pipeline.jars | list | -
pipeline.jobvertex-parallelism-overrides | map | -
pipeline.object-reuse | bool | false
pipeline.operator-chaining.chain-operators-with-different-max-parallelism | bool | true
pipeline.serialization-config | list | -
pipeline.vertex-description-mode | str | TREE
pipeline.vertex-name-include-index-prefix | bool | false
= Execution: accepted for portability.
execution.batch-shuffle-mode | str | ALL_EXCHANGES_BLOCKING
execution.sort-keyed-partition.memory | memory | 128 mb
execution.sort-partition.memory | memory | 128 mb
= Checkpointing: accepted for portability.
execution.checkpointing.snapshot-compression | bool | false
execution.checkpointing.cleaner.parallel-mode | bool | true
execution.checkpointing.create-subdir | bool | true
execution.checkpointing.file-merging.across-checkpoint-boundary | bool | false
execution.checkpointing.file-merging.enabled | bool | false
execution.checkpointing.file-merging.max-file-size | memory | 32 mb
execution.checkpointing.file-merging.max-space-amplification | float | 2.0
execution.checkpointing.file-merging.pool-blocking | bool | false
execution.checkpointing.interval-during-backlog | duration | -
execution.checkpointing.local-backup.dirs | str | -
execution.checkpointing.local-backup.enabled | bool | false
execution.checkpointing.storage | str | -
execution.checkpointing.unaligned.forced | bool | false
execution.checkpointing.unaligned.interruptible-timers.enabled | bool | false
execution.checkpointing.unaligned.max-subtasks-per-channel-state-file | int | 5
execution.checkpointing.write-buffer-size | int | 4096
= REST: accepted for portability.
rest.async.store-duration | duration | 5 min
rest.await-leader-timeout | duration | 30 s
rest.cache.checkpoint-statistics.size | int | 1000
rest.cache.checkpoint-statistics.timeout | duration | 3 s
rest.client.max-content-length | int | 104857600
rest.connection-timeout | duration | 15 s
rest.flamegraph.cleanup-interval | duration | 10 min
rest.flamegraph.delay-between-samples | duration | 50 ms
rest.flamegraph.enabled | bool | false
rest.flamegraph.num-samples | int | 100
rest.flamegraph.refresh-interval | duration | 1 min
rest.flamegraph.stack-depth | int | 100
rest.idleness-timeout | duration | 5 min
rest.path | str | -
rest.profiling.dir | str | -
rest.profiling.duration-max | duration | 5 min
rest.profiling.enabled | bool | false
rest.profiling.history-size | int | 10
rest.retry.delay | duration | 3 s
rest.retry.max-attempts | int | 20
rest.server.max-content-length | int | 104857600
rest.server.numThreads | int | 4
rest.server.thread-priority | int | 5
rest.url-prefix | str | /
"""
