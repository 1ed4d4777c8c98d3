"""Duration, Instant and Time under PyFlink's name; the model defines the classes.

Source: pyflink.common.time.
"""

from penstock.engine.model.time import Duration, Instant, Time

__all__ = ["Duration", "Instant", "Time"]
