"""Bounds of times under PyFlink's name: the watermark before the first one, and the last one. Source:
pyflink.common.constants.
"""

from penstock.engine.runtime.elements import MAX_WATERMARK as MAX_LONG_VALUE
from penstock.engine.runtime.elements import MIN_WATERMARK as MIN_LONG_VALUE

__all__ = ["MAX_LONG_VALUE", "MIN_LONG_VALUE"]
