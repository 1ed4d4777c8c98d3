"""Metrics of this process and of its tasks: measured here, reported to the driver in intervals. Used on the driver too."""
