"""The exception tree.

    PenstockError
    |- UserError                the user can correct it
    |  |- ConfigurationError    an option: key, what it got, what it takes
    |  |- GraphError            the program: a cycle, parallelism above the maximum, a wrong type
    |  |- FinalError            no restart can help: a state that does not fit the program, a call where none is allowed
    |  |- UserCodeError         the user's function raised: operator, subtask, record, source line
    |  `- JobExecutionError     what `execute()` raises when a job ends in FAILED
    |     |- JobCancelledError
    |     `- JobSuspendedError
    |- ExternalError            something outside failed: a retry may succeed
    |  |- RefusedForGood       another try cannot succeed: wrong password, rights, a constraint
    |  |- NoResourceAvailable
    |  |- InsufficientBuffers
    |  |- PartitionError        a result partition cannot be read: which one, if it must be made again
    |  |  |- PartitionConnectionError
    |  |  |- PartitionNotFound
    |  |  `- ResultDataLost     the file of a blocking result is gone, too short, or damaged
    |  |- ResultWriteError      a blocking result cannot be written: the disk is full, for example
    |  |- ProducerFailed
    |  |- BufferReordering
    |  |- AuthenticationError
    |  `- NoProgress            a task has done nothing for too long
    `- EngineBug                Penstock is wrong
       |- IllegalTransition
       `- BrokenInvariant

    CancelSignal                no error: it ends a task's thread after a cancel

A message says what was wrong, what it got, what was expected, where, and the next step. Does not know the parts that
raise these errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.engine.model.ids import ResultPartitionId


class PenstockError(Exception):
    """The root of all errors that Penstock raises on purpose. `is_recoverable` False: no restart can help."""

    is_recoverable: bool = True


class UserError(PenstockError):
    """An error that the user can correct."""


class ConfigurationError(UserError, ValueError):
    """An option or argument has a value that cannot work."""


class GraphError(UserError):
    """The program describes a dataflow that cannot run."""


class FinalError(UserError):
    """The program, or what it is restored from, has to be another one: the job ends, whatever its restart strategy says."""

    is_recoverable = False


class UserCodeError(UserError):
    """A user function raised. The text begins with the error in one line; Penstock's frames are left out.

    `frames`: the whole traceback, with Penstock's frames.
    """

    frames: str = ""


class JobExecutionError(UserError):
    """A job ended in FAILED; the text contains the first failure's full traceback."""


class JobCancelledError(JobExecutionError):
    """A job was cancelled while somebody waited for its result."""


class JobSuspendedError(JobExecutionError):
    """Another driver leads the job now; here the job ended without commit or clean-up."""


class ExternalError(PenstockError):
    """Something outside of Penstock failed; another try may succeed."""


class RefusedForGood(ExternalError):
    """Something outside of Penstock refuses, and will again: the job ends, whatever its restart strategy says.

    Source: Flink SuppressRestartsException.
    """

    is_recoverable = False


class NoProgress(ExternalError):
    """A task has done nothing for `penstock.task.progress-timeout`, although it had something to do."""


class NoResourceAvailable(ExternalError):
    """The slots that a job needs did not come in time."""


class InsufficientBuffers(ExternalError):
    """The network memory of a TaskManager is too small for what its tasks require."""


class PartitionError(ExternalError):
    """A result partition cannot be read.

    `partition_id`: a `ResultPartitionId`, if its producer must run again; else None.
    """

    partition_id: ResultPartitionId | None = None


class PartitionNotFound(PartitionError):
    """A consumer asked for a result partition that its producer's TaskManager does not have."""


class PartitionConnectionError(PartitionError):
    """The connection to a producer's TaskManager could not be made, or broke."""


class ProducerFailed(ExternalError):
    """The task that produces an input failed or was cancelled; this consumer only learned of it."""


class BufferReordering(ExternalError):
    """A frame has another sequence number than the expected one: a frame was lost, repeated or overtaken."""


class ResultDataLost(PartitionError):
    """The file of a blocking result is gone, too short, or damaged, so the result has to be made again.

    Flink raises a PartitionNotFoundException in this case.
    """


class ResultWriteError(ExternalError):
    """A blocking result cannot be written: the disk is full, or the directory is not there."""


class AuthenticationError(ExternalError):
    """A peer did not prove that it belongs to this application."""


class CancelSignal(BaseException):
    """Unwinds a task's thread after a cancel; never counts as a failure. Not an Exception, so that user code does not catch it."""


class EngineBug(PenstockError):
    """Penstock itself is wrong. Please report it with the story in the text."""


class IllegalTransition(EngineBug):
    """A state machine got an event that cannot occur in its state."""


class BrokenInvariant(EngineBug):
    """A named invariant does not hold."""


def may_recover(error: BaseException) -> bool:
    """Whether a restart may help."""
    return not isinstance(error, PenstockError) or error.is_recoverable


NOT_OF_FUNCTIONS: Final = (UserCodeError, ExternalError, EngineBug)
"""Errors that no user function raised, or that say already where one did."""
