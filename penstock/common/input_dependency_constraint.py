"""Kept so that programs import: scheduling goes by regions. Source: pyflink.common."""

from enum import Enum


class InputDependencyConstraint(Enum):
    """When a consumer may start; without effect since regions decide it."""

    ANY = 0
    ALL = 1
