"""Watermark strategies under PyFlink's name. Source: pyflink.common.watermark_strategy."""

from penstock.common.absent import absent
from penstock.engine.runtime.watermarks.strategy import TimestampAssigner, WatermarkStrategy

__all__ = ["TimestampAssigner", "WatermarkStrategy"]

__getattr__ = absent(
    __name__,
    {
        "AssignerWithPeriodicWatermarksWrapper": "It wraps a Java class; use a WatermarkStrategy.",
    },
    ("penstock.common.time",),
)
