"""The port through which programs are run, under the API's name. See `penstock.engine.model.program`."""

from penstock.engine.model.program import JobControl, JobExecutor, JobOutcome, ProgramSettings

__all__ = ["JobControl", "JobExecutor", "JobOutcome", "ProgramSettings"]
