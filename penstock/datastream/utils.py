"""Small helpers that connectors share.

Source: pyflink.datastream.utils; differs: nothing about Java.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.common.typeinfo import TypeInformation


class ResultTypeQueryable(ABC):
    """Something that knows the type of what it makes."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation: ...
