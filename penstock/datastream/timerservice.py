"""TimerService under PyFlink's name. Source: pyflink.datastream.timerservice."""

from penstock.engine.runtime.operators import TimerService

__all__ = ["TimerService"]
