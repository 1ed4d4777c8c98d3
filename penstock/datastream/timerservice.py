"""TimerService under PyFlink's name. Source: pyflink.datastream.timerservice."""

from penstock.runtime.operators import TimerService

__all__ = ["TimerService"]
