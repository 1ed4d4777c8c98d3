"""TimeDomain under PyFlink's address. Source: pyflink.datastream.time_domain."""

from penstock.runtime.timers import TimeDomain

__all__ = ["TimeDomain"]
