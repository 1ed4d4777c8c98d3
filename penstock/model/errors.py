"""The exception tree.

    PenstockError
    |- UserError                the user can mend it
    |  |- ConfigurationError    an option: key, what it got, what it takes
    |  |- GraphError            the program: a cycle, parallelism above the maximum, a wrong type
    |  |- UserCodeError         the user's function raised: operator, subtask, record, source line
    |  `- JobExecutionError     what `execute()` raises when a job ends in FAILED
    |     |- JobCancelledError
    |     `- JobSuspendedError
    |- ExternalError            the world: may be tried again
    |  |- NoResourceAvailable
    |  |- InsufficientBuffers
    |  |- PartitionError        a result partition cannot be read: which, if it has to be made anew
    |  |  |- PartitionConnectionError
    |  |  |- PartitionNotFound
    |  |  `- ResultDataLost     the file of a blocking result is gone, short, or damaged
    |  |- ResultWriteError      a blocking result cannot be written: the disk is full, say
    |  |- ProducerFailed
    |  |- BufferReordering
    |  `- AuthenticationError
    `- EngineBug                we are wrong
       |- IllegalTransition
       `- BrokenInvariant

A message says what was wrong, what it got, what was expected, where, and the next step.
Knows nothing of the pieces that raise them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.model.ids import ResultPartitionId


class PenstockError(Exception):
    """Root of everything that Penstock raises on purpose."""


class UserError(PenstockError):
    """Something that the user can mend."""


class ConfigurationError(UserError, ValueError):
    """An option or argument has a value that cannot work."""


class GraphError(UserError):
    """The program describes a dataflow that cannot run."""


class UserCodeError(UserError):
    """A user function raised. The text starts with the user's own traceback."""


class JobExecutionError(UserError):
    """A job ended in FAILED; the text contains the first failure's full traceback."""


class JobCancelledError(JobExecutionError):
    """A job was cancelled while somebody waited for its result."""


class JobSuspendedError(JobExecutionError):
    """Another driver leads the job now; here it ended without commit or clean-up."""


class ExternalError(PenstockError):
    """The world outside failed; another try may succeed."""


class NoResourceAvailable(ExternalError):
    """The slots that a job needs did not come in time."""


class InsufficientBuffers(ExternalError):
    """The network memory of a TaskManager is too small for what its tasks require."""


class PartitionError(ExternalError):
    """A result partition cannot be read.

    `partition_id`: a `ResultPartitionId`, if what made it must run again for that; else None.
    """

    partition_id: ResultPartitionId | None = None


class PartitionNotFound(PartitionError):
    """A consumer asked for a result partition that its producer's TaskManager does not have."""


class PartitionConnectionError(PartitionError):
    """The connection to a producer's TaskManager could not be made or broke."""


class ProducerFailed(ExternalError):
    """The task that produces an input failed or was cancelled; this consumer only learned of it."""


class BufferReordering(ExternalError):
    """A frame came with another sequence number than was due: one was lost, repeated or overtaken."""


class ResultDataLost(PartitionError):
    """The file of a blocking result is gone, shorter than it was written, or damaged: it has to be made anew.

    Flink's PartitionNotFoundException of a result that was there.
    """


class ResultWriteError(ExternalError):
    """A blocking result cannot be written: the disk is full, or the directory is not there."""


class AuthenticationError(ExternalError):
    """A peer did not prove that it belongs to this application."""


class EngineBug(PenstockError):
    """Penstock itself is wrong; please report it with the story in the text."""


class IllegalTransition(EngineBug):
    """A state machine got an event that its state can never see."""


class BrokenInvariant(EngineBug):
    """A named invariant does not hold."""
