"""What the configuration sets for tasks, beside the program's own calls."""

import pytest

from penstock.engine.hosting.program.settings import (
    job_manager_settings,
    job_parameters,
    python_files,
)
from penstock.engine.model.config import Settings
from penstock.engine.model.errors import ConfigurationError
from penstock.engine.model.program import ProgramSettings


def test_job_parameters_of_the_program_count_more():
    configured = Settings({"pipeline.global-job-parameters": "a:1,b:2"})
    program = ProgramSettings(job_parameters={"b": "3", "c": "4"})
    assert job_parameters(configured, program) == {"a": "1", "b": "3", "c": "4"}


def test_configured_python_files_come_after_the_programs():
    program = ProgramSettings(python_files=("own.py",))
    assert python_files(Settings(), program) == ["own.py"]
    configured = Settings({"python.files": "one.py, folder/two.zip"})
    assert python_files(configured, program) == ["own.py", "one.py", "folder/two.zip"]


def test_rows_of_a_call_with_columns_are_limited_only_if_the_user_says_so():
    key = "python.fn-execution.arrow.batch.size"
    assert job_manager_settings(Settings(), ProgramSettings()).task.steps.column_rows == 0
    limited = job_manager_settings(Settings({key: "500"}), ProgramSettings())
    assert limited.task.steps.column_rows == 500
    with pytest.raises(ConfigurationError, match=f"{key}.* at least 1"):
        job_manager_settings(Settings({key: "0"}), ProgramSettings())
