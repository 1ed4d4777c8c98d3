"""TimerService under PyFlink's address. Source: pyflink.datastream.timerservice."""

from penstock.runtime.operators import TimerService

__all__ = ["TimerService"]
