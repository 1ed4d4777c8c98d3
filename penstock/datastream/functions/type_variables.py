"""The type variables of streams and functions, for type checkers. Knows no class that has them.

Source: the type parameters of Flink's Java classes.
"""

from typing import TypeVar

T = TypeVar("T")
"""The records of a stream."""
T1 = TypeVar("T1")
T2 = TypeVar("T2")
R = TypeVar("R")
"""The results of an operator."""
V = TypeVar("V")
"""The results of an aggregation, which a window function reads."""
K = TypeVar("K")
"""The keys of a stream."""
K2 = TypeVar("K2")

IN = TypeVar("IN", contravariant=True)  # ruff: ignore[type-name-incorrect-variance]
IN1 = TypeVar("IN1", contravariant=True)  # ruff: ignore[type-name-incorrect-variance]
IN2 = TypeVar("IN2", contravariant=True)  # ruff: ignore[type-name-incorrect-variance]
OUT = TypeVar("OUT", covariant=True)  # ruff: ignore[type-name-incorrect-variance]
KEY = TypeVar("KEY")
ACC = TypeVar("ACC")
W = TypeVar("W")
