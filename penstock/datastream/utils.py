"""Small helpers that connectors share.

Source: pyflink.datastream.utils; differs: the helpers for Java are left out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from penstock.common.absent import absent
from penstock.common.typeinfo import TypeInformation


class ResultTypeQueryable(ABC):
    """Something that declares the type of its results."""

    @abstractmethod
    def get_produced_type(self) -> TypeInformation:
        """Return the type of the results."""


__getattr__ = absent(
    __name__,
    {
        **dict.fromkeys(
            ("convert_to_python_obj", "pickled_bytes_to_python_obj"),
            "It converts values that come from Java; values are Python objects here.",
        ),
        **dict.fromkeys(
            ("create_hadoop_configuration", "create_java_properties"),
            "It makes a Java object; set fs.* and other options in the configuration.",
        ),
    },
)
