"""Functions that say whether an attempt is made again. Source: pyflink.datastream.async_retry_predicates."""

from __future__ import annotations

from typing import Any


def empty_result_predicate(result: list[Any]) -> bool:
    """Return whether there is no result, or an empty list."""
    return not result


def exception_type_predicate(error: BaseException, expected_error_type: type) -> bool:
    """Return whether the error is an instance of the type."""
    return isinstance(error, expected_error_type)


def has_exception_predicate(error: BaseException | None) -> bool:
    """Return whether there is an error."""
    return error is not None
