"""What of a SparkContext does not change while it lives, asked once: each question to the JVM takes a moment, and there are many.

Source: Spark clones its SparkConf when the context is made, and takes no changes afterwards.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Final

from pyspark import SparkContext

_CONFIGURATIONS: Final[weakref.WeakKeyDictionary[SparkContext, Mapping[str, str]]] = (
    weakref.WeakKeyDictionary()
)
_PAGES: Final[weakref.WeakKeyDictionary[SparkContext, str | None]] = weakref.WeakKeyDictionary()


def configuration_of(context: SparkContext) -> Mapping[str, str]:
    """Return Spark's configuration. Raises what Py4J raises: the session was stopped before anybody has asked."""
    found = _CONFIGURATIONS.get(context)
    if found is None:
        found = _CONFIGURATIONS[context] = dict(context.getConf().getAll())
    return found


def page_of(context: SparkContext) -> str | None:
    """Return the address of Spark's own pages; None: there are none."""
    if context not in _PAGES:
        _PAGES[context] = context.uiWebUrl
    return _PAGES[context]
