"""ErrorPolicy: what an operator or a source does with a record at which a function of yours raises. Not in PyFlink.

Does not know operators. Source: none in Flink, where such an error always fails the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.graph.stream_graph import ErrorRule
from penstock.engine.model.types import is_pickled
from penstock.engine.runtime.records.dead_letters import (
    DEAD_LETTER_TYPE,
    DeadLetter,
    FiredTimer,
    FiredWindow,
)
from penstock.engine.runtime.records.side_output import OutputTag
from penstock.engine.runtime.sink import Sink

__all__ = ["DEAD_LETTER_TYPE", "DeadLetter", "ErrorPolicy", "FiredTimer", "FiredWindow"]

SINK_TAG: Final = "penstock dead letters"
"""The side output whose dead letters a sink writes."""
Exceptions: TypeAlias = "type[Exception] | tuple[type[Exception], ...]"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What `on_error` takes. Make it with one of its methods.

    `only`: the classes of exceptions for which the policy holds; others fail the job. What is no Exception, such as
    KeyboardInterrupt, always does.
    """

    rule: ErrorRule | None
    sink: Sink | None = None

    @staticmethod
    def fail() -> ErrorPolicy:
        """Return the policy of an operator for which none is set: the job fails, and restarts as
        configured."""
        return ErrorPolicy(None)

    @staticmethod
    def skip(only: Exceptions = Exception) -> ErrorPolicy:
        """Return the policy to count the record, log a sample, and continue with the next one."""
        return ErrorPolicy(ErrorRule(None, _classes(only)))

    @staticmethod
    def side_output(output_tag: OutputTag, only: Exceptions = Exception) -> ErrorPolicy:
        """Return the policy to send a DeadLetter to a side output, as well as to count and log.

        Read it with `get_side_output(output_tag)` of the stream on which the policy is set.
        """
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"ErrorPolicy.side_output takes an OutputTag, got {output_tag!r}.")
        if not is_pickled(output_tag.type_info):
            raise ConfigurationError(
                f"ErrorPolicy.side_output: the records of {output_tag!r} are DeadLetter objects. "
                "Make the tag without a type, as in "
                f"OutputTag({output_tag.tag_id!r})."
            )
        return ErrorPolicy(ErrorRule(output_tag.tag_id, _classes(only)))

    @staticmethod
    def send_to(sink: Sink, only: Exceptions = Exception) -> ErrorPolicy:
        """Return the policy to write dead letters to a sink, as Rows of `DEAD_LETTER_TYPE`, as
        well as to count and log."""
        if not isinstance(sink, Sink):
            raise TypeError(
                "ErrorPolicy.send_to takes a Sink of penstock.datastream.connectors, got "
                f"{type(sink).__name__}."
            )
        return ErrorPolicy(ErrorRule(SINK_TAG, _classes(only)), sink)

    @staticmethod
    def of(given: object) -> ErrorPolicy:
        """Return the policy that `on_error` was given: itself, "fail", "skip", an OutputTag or a Sink.

        Raises:
            TypeError: it is something else.
        """
        if isinstance(given, ErrorPolicy):
            return given
        if isinstance(given, OutputTag):
            return ErrorPolicy.side_output(given)
        if isinstance(given, Sink):
            return ErrorPolicy.send_to(given)
        if given == "skip":
            return ErrorPolicy.skip()
        if given == "fail":
            return ErrorPolicy.fail()
        raise TypeError(
            "on_error takes 'fail', 'skip', an OutputTag, a Sink, or an ErrorPolicy such as "
            "ErrorPolicy.skip(only=ValueError), got "
            f"{given!r:.200}."
        )


def _classes(only: Exceptions) -> tuple[type[Exception], ...]:
    classes = only if isinstance(only, tuple) else (only,)
    for one in classes:
        if not (isinstance(one, type) and issubclass(one, Exception)):
            raise TypeError(
                "an ErrorPolicy takes classes of exceptions in `only`, such as ValueError, got "
                f"{one!r:.200}. It cannot hold for what is "
                "no Exception."
            )
    if not classes:
        raise TypeError("an ErrorPolicy takes at least one class of exceptions in `only`, got ().")
    return classes
