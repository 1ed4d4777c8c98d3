"""Watermark strategies under PyFlink's address. Source: pyflink.common.watermark_strategy."""

from penstock.runtime.watermarks import TimestampAssigner, WatermarkStrategy

__all__ = ["TimestampAssigner", "WatermarkStrategy"]
