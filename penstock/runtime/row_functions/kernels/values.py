"""What the steps of a kernel give, known before it runs. Does not know vectors' values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.runtime.row_functions.kernels.vectors import Of


@dataclass(frozen=True, slots=True)
class Value:
    """What a step gives. `at`: the step's index. `column`: the column, if it is passed on as it is."""

    of: Of
    at: int
    is_constant: bool = False
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What a function gives. `names`: of a Row. `width`: of a tuple or Row; None: it gives a value. `keeps`: whether there is a result;
    None: for each record.
    """

    fields: tuple[Value, ...]
    width: int | None
    is_row: bool
    names: tuple[str, ...] | None
    keeps: Value | None = None

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.width, self.is_row, self.names
