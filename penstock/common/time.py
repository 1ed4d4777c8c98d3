"""Duration, Instant and Time under PyFlink's address; the classes stand in the model.

Source: pyflink.common.time.
"""

from penstock.model.time import Duration, Instant, Time

__all__ = ["Duration", "Instant", "Time"]
