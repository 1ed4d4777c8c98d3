"""Functions that say whether an attempt is made again. Source: pyflink.datastream.async_retry_predicates."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any]) -> bool:
    """There is no result, or an empty list."""
    return not result


def exception_type_predicate(error: BaseException, expected_error_type: type) -> bool:
    """The error is of this type exactly, or of one below it."""
    return isinstance(error, expected_error_type)


def has_exception_predicate(error: BaseException | None) -> bool:
    """There is an error, whatever it is."""
    return error is not None
