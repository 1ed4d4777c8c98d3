"""TimeDomain under PyFlink's name. Source: pyflink.datastream.time_domain."""

from penstock.engine.runtime.operators.timer_service import TimeDomain

__all__ = ["TimeDomain"]
