"""TableSource: what sources share that read a table as it is, or also follow it. Does not know the tables' format."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.api.base import Boundedness, EnumeratorContext, QueueEnumerator, Source


class _Settings(Protocol):
    @property
    def every_ms(self) -> int | None:
        """How often the source looks for more; None: it ends."""


S = TypeVar("S", bound=_Settings)


class TableEnumerator(QueueEnumerator, Generic[S]):
    """Hands out the files of a table, and those that come later if the source follows it."""

    def __init__(self, context: EnumeratorContext, settings: S) -> None:
        super().__init__(context, (), is_final=settings.every_ms is None)
        self._settings = settings

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Go on behind a checkpoint: see `snapshot_state`."""


class TableSource(Source, Generic[S]):
    """A source of the rows of one table."""

    def __init__(self, settings: S, row_type: TypeInformation) -> None:
        self._settings = settings
        self._type = row_type

    @property
    def boundedness(self) -> Boundedness:
        if self._settings.every_ms is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    @abstractmethod
    def create_enumerator(self, context: EnumeratorContext) -> TableEnumerator[S]: ...

    def restore_enumerator(self, context: EnumeratorContext, state: Any) -> TableEnumerator[S]:
        enumerator = self.create_enumerator(context)
        enumerator.restore(state)
        return enumerator
