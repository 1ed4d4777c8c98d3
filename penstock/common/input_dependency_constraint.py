"""Kept so that programs can import it: scheduling goes by regions. Source: pyflink.common."""

from enum import Enum


class InputDependencyConstraint(Enum):
    """When a consumer may start. It has no effect, as pipelined regions decide that."""

    ANY = 0
    ALL = 1
