"""Options that a program sets for itself. Source: Flink PipelineOptions, ExecutionOptions, PythonOptions."""

from typing import Final

from penstock.engine.model.options.option import (
    OptionGroup,
    duration,
    flag,
    pairs,
    size,
    text,
    whole,
)


class PipelineOptions(OptionGroup, title="The job"):
    """The name of the job, the limits of its parallelism, and its watermarks."""

    AUTO_WATERMARK_INTERVAL = duration("pipeline.auto-watermark-interval", "200 ms")
    """How often periodic watermarks are generated."""
    ALLOW_UNALIGNED_SOURCE_SPLITS = flag(
        "pipeline.watermark-alignment.allow-unaligned-source-splits", "false"
    )
    """Whether a source may be in an alignment group although its readers cannot pause single splits."""
    FIXED_JOB_ID = text("pipeline.fixed-job-id")
    """Id of the job, 32 hexadecimal digits. Without it: a random one."""
    GLOBAL_JOB_PARAMETERS = pairs("pipeline.global-job-parameters")
    """Pairs that every function can read from its context."""
    MAX_PARALLELISM = whole("pipeline.max-parallelism", "-1")
    """Maximum parallelism (number of key groups) of operators that set none. -1: derived from their parallelism."""
    NAME = text("pipeline.name")
    """Name of the job."""
    CHAINING_ENABLED = flag(
        "pipeline.operator-chaining.enabled", "true", former="pipeline.operator-chaining"
    )
    """Whether operators may share tasks."""
    AUTO_GENERATE_UIDS = flag("pipeline.auto-generate-uids", "true", is_used=False)
    """Kept for ExecutionConfig; operators without a uid get one."""
    CLOSURE_CLEANER_LEVEL = text("pipeline.closure-cleaner-level", "RECURSIVE", is_used=False)
    """Kept for ExecutionConfig; closures of Python functions are not cleaned."""
    FORCE_AVRO = flag("pipeline.force-avro", "false", is_used=False)
    """Kept for ExecutionConfig; types choose their serializer."""
    FORCE_KRYO = flag("pipeline.force-kryo", "false", is_used=False)
    """Kept for ExecutionConfig; Penstock has no Kryo."""
    GENERIC_TYPES = flag("pipeline.generic-types", "true", is_used=False)
    """Kept for ExecutionConfig; values without a type are pickled."""
    OBJECT_REUSE = flag("pipeline.object-reuse", "false")
    """Whether functions emit lists, dicts, Rows and other objects that can be changed as they are, and not as copies.
    Set it only if no function changes what it has emitted or got."""
    CHAINING_ACROSS_MAX_PARALLELISM = flag(
        "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
        "true",
        is_used=False,
    )
    """Kept for StreamExecutionEnvironment; operators with different maximum parallelism share tasks too."""


class ExecutionOptions(OptionGroup, title="How the job is executed"):
    """The runtime mode, and when buffers are sent."""

    BATCH_COMBINE = flag("penstock.batch.combine", "true")
    """Whether keyed reduces and aggregates of BATCH jobs combine records before the shuffle, where that does not change
    their results."""
    BUFFER_TIMEOUT_ENABLED = flag("execution.buffer-timeout.enabled", "true")
    """Whether buffers are sent after a timeout. If not, they are sent only when they are full or the input pauses."""
    BUFFER_TIMEOUT = duration(
        "execution.buffer-timeout.interval", "100 ms", former="execution.buffer-timeout"
    )
    """Longest time that records wait for a fuller buffer."""
    RUNTIME_MODE = text("execution.runtime-mode", "STREAMING")
    """STREAMING, BATCH or AUTOMATIC."""
    SORTED_INPUTS_MEMORY = size("execution.sorted-inputs.memory", "128 mb")
    """In BATCH mode: how much of its input a keyed subtask holds in memory. The rest goes to disk."""


REMOTE: Final = "remote"
"""The target whose jobs go to a session."""


class DeploymentOptions(OptionGroup, title="Where jobs run"):
    """Whether a program is the driver of its jobs, or submits them to a session."""

    TARGET = text("execution.target")
    """`remote`: jobs are submitted to the session at rest.address and rest.port. Other values, and none: the program is
    the driver of its jobs."""
    ATTACHED = flag("execution.attached", "true")
    """Whether `execute` waits for the end of a job in a session. Without a session it always does."""
    ENDS_WITH_CLIENT = flag("execution.shutdown-on-attached-exit", "false")
    """Whether Ctrl-C at a client that waits for a job in a session cancels the job. If not, the job
    continues there.
    """


class PythonOptions(OptionGroup, title="Python files and packages"):
    """Files and packages that the tasks import."""

    FILES = text("python.files")
    """Files and directories that are put on `sys.path` of the tasks, separated by commas."""
    ARCHIVES = text("python.archives")
    """Archives that are unpacked for the tasks, as `a.zip#name,b.zip`."""
    REQUIREMENTS = text("python.requirements")
    """Requirements file for the tasks, as `file#folder of packages`."""
    EXECUTABLE = text("python.executable", "python")
    """The Python interpreter of the tasks. A Spark that Penstock starts on a cluster gets it as PYSPARK_PYTHON.
    Elsewhere the tasks run the driver's interpreter (local masters) or that of the SparkSession, and another one is
    refused."""
