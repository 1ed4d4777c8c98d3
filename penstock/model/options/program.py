"""Options that a program sets for itself.

Does not know their readers. Source: Flink PipelineOptions, ExecutionOptions, PythonOptions. Differs: `penstock.*` keys
are Penstock's own.
"""

from typing import Final

from penstock.model.options.option import OptionGroup, duration, flag, pairs, size, text, whole


class PipelineOptions(OptionGroup, title="The job"):
    """The name of the job, the limits of its parallelism, and its watermarks."""

    AUTO_WATERMARK_INTERVAL: Final = duration(
        "pipeline.auto-watermark-interval",
        "200 ms",
        "How often periodic watermarks are generated.",
    )
    ALLOW_UNALIGNED_SOURCE_SPLITS: Final = flag(
        "pipeline.watermark-alignment.allow-unaligned-source-splits",
        "false",
        (
            "Whether a source may be in an alignment group although its readers cannot pause "
            "single splits."
        ),
    )
    FIXED_JOB_ID: Final = text(
        "pipeline.fixed-job-id",
        None,
        "Id of the job, 32 hexadecimal digits. Without it: a random one.",
    )
    GLOBAL_JOB_PARAMETERS: Final = pairs(
        "pipeline.global-job-parameters",
        None,
        "Pairs that every function can read from its context.",
    )
    MAX_PARALLELISM: Final = whole(
        "pipeline.max-parallelism",
        "-1",
        (
            "Maximum parallelism (number of key groups) of operators that set none. -1: derived "
            "from their parallelism."
        ),
    )
    NAME: Final = text("pipeline.name", None, "Name of the job.")
    CHAINING_ENABLED: Final = flag(
        "pipeline.operator-chaining.enabled",
        "true",
        "Whether operators may share tasks.",
        former_keys=("pipeline.operator-chaining",),
    )
    AUTO_GENERATE_UIDS: Final = flag(
        "pipeline.auto-generate-uids",
        "true",
        "Kept for ExecutionConfig; operators without a uid get one.",
        is_used=False,
    )
    CLOSURE_CLEANER_LEVEL: Final = text(
        "pipeline.closure-cleaner-level",
        "RECURSIVE",
        "Kept for ExecutionConfig; closures of Python functions are not cleaned.",
        is_used=False,
    )
    FORCE_AVRO: Final = flag(
        "pipeline.force-avro",
        "false",
        "Kept for ExecutionConfig; types choose their serializer.",
        is_used=False,
    )
    FORCE_KRYO: Final = flag(
        "pipeline.force-kryo",
        "false",
        "Kept for ExecutionConfig; Penstock has no Kryo.",
        is_used=False,
    )
    GENERIC_TYPES: Final = flag(
        "pipeline.generic-types",
        "true",
        "Kept for ExecutionConfig; values without a type are pickled.",
        is_used=False,
    )
    OBJECT_REUSE: Final = flag(
        "pipeline.object-reuse",
        "false",
        "Whether functions emit lists, dicts, Rows and other objects that can be changed as they "
        "are, and not as copies. Set it only if no function changes what it has emitted or got.",
    )
    CHAINING_ACROSS_MAX_PARALLELISM: Final = flag(
        "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
        "true",
        "Kept for StreamExecutionEnvironment; operators with different maximum parallelism share "
        "tasks too.",
        is_used=False,
    )


class ExecutionOptions(OptionGroup, title="How the job is executed"):
    """The runtime mode, and when buffers are sent."""

    BATCH_COMBINE: Final = flag(
        "penstock.batch.combine",
        "true",
        (
            "Whether keyed reduces and aggregates of BATCH jobs combine records before the "
            "shuffle, where that does not change their results."
        ),
    )
    BUFFER_TIMEOUT_ENABLED: Final = flag(
        "execution.buffer-timeout.enabled",
        "true",
        (
            "Whether buffers are sent after a timeout. If not, they are sent only when they are "
            "full or the input pauses."
        ),
    )
    BUFFER_TIMEOUT: Final = duration(
        "execution.buffer-timeout.interval",
        "100 ms",
        "Longest time that records wait for a fuller buffer.",
        former_keys=("execution.buffer-timeout",),
    )
    RUNTIME_MODE: Final = text(
        "execution.runtime-mode",
        "STREAMING",
        "STREAMING, BATCH or AUTOMATIC.",
    )
    SORTED_INPUTS_MEMORY: Final = size(
        "execution.sorted-inputs.memory",
        "128 mb",
        (
            "In BATCH mode: how much of its input a keyed subtask holds in memory. The rest goes "
            "to disk."
        ),
    )


REMOTE: Final = "remote"
"""The target whose jobs go to a session."""


class DeploymentOptions(OptionGroup, title="Where jobs run"):
    """Whether a program is the driver of its jobs, or submits them to a session."""

    TARGET: Final = text(
        "execution.target",
        None,
        (
            "`remote`: jobs are submitted to the session at rest.address and rest.port. Other "
            "values, and none: the program is the driver of its jobs."
        ),
    )
    ATTACHED: Final = flag(
        "execution.attached",
        "true",
        (
            "Whether `execute` waits for the end of a job in a session. Without a session it "
            "always does."
        ),
    )
    ENDS_WITH_CLIENT: Final = flag(
        "execution.shutdown-on-attached-exit",
        "false",
        (
            "Whether Ctrl-C at a client that waits for a job in a session cancels the job. If not, "
            "the job goes on there."
        ),
    )


class PythonOptions(OptionGroup, title="Python files and packages"):
    """Files and packages that the tasks import."""

    FILES: Final = text(
        "python.files",
        None,
        "Files and directories that are put on `sys.path` of the tasks, separated by commas.",
    )
    ARCHIVES: Final = text(
        "python.archives",
        None,
        "Archives that are unpacked for the tasks, as `a.zip#name,b.zip`.",
    )
    REQUIREMENTS: Final = text(
        "python.requirements",
        None,
        "Requirements file for the tasks, as `file#folder of packages`.",
    )
    EXECUTABLE: Final = text(
        "python.executable",
        "python",
        (
            "The Python interpreter of the tasks. A Spark that Penstock starts on a cluster gets "
            "it as PYSPARK_PYTHON. Elsewhere the tasks run the driver's interpreter (local "
            "masters) or that of the SparkSession, and another one is refused."
        ),
    )
