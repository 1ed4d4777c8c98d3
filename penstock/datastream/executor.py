"""The port through which programs are run, under the API's name. See `penstock.model.program`."""

from penstock.compiler.serialization_check import find_unserialisable
from penstock.model.program import JobControl, JobExecutor, JobOutcome, ProgramSettings

__all__ = ["JobControl", "JobExecutor", "JobOutcome", "ProgramSettings", "find_unserialisable"]
