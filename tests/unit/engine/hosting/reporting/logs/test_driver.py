"""The log of the driver, and what the program sees of logging beside it."""

import json
import os
import re
import subprocess
import sys

import pytest

from penstock.engine.hosting.reporting.logs import driver
from penstock.engine.hosting.reporting.logs.driver import log_folder
from penstock.engine.model.messages import ReadLog
from tests.tools.terminal import ROOT

BEGINNING = """
import logging, os, signal, sys
from penstock.engine.hosting.reporting.logs import driver
from penstock.engine.hosting.reporting.logs.settings import log_settings_of
from penstock.engine.model.config import Settings
own = logging.getLogger("penstock.engine.hosting.jobmanager.machine_shell")
def start(**settings):
    given = {key.replace("__", ".").replace("_", "-"): value for key, value in settings.items()}
    return driver.start(log_settings_of(Settings(given)))
"""


def run(code, folder, *arguments):
    """The program, when it has ended well."""
    return subprocess.run(
        [sys.executable, "-c", BEGINNING + code, *arguments],
        capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


LOGS = """
path = start(env__log__dir=sys.argv[1])
driver.thread_belongs_to("abc")
own.info("of a job")
driver.thread_belongs_to("")
own.debug("not this")
logging.getLogger("of.the.program").warning("the program warns")
logging.getLogger("of.the.program").info("the program's loggers do not let this pass")
"""


def log_in(folder):
    (path,) = folder.iterdir()
    assert re.fullmatch(r"penstock-jobmanager-\d+\.log", path.name)
    return path.read_text("utf-8").splitlines()


def test_the_log_has_penstocks_lines_and_the_programs(tmp_path):
    run(LOGS, tmp_path, str(tmp_path / "logs"))
    first, second = log_in(tmp_path / "logs")
    assert first.endswith(
        " INFO    penstock.engine.hosting.jobmanager.machine_shell [job=abc] - of a job"
    )
    assert second.endswith(" WARNING of.the.program - the program warns")


def test_it_may_be_json(tmp_path):
    code = LOGS.replace("env__log__dir", 'penstock__log__format="json", env__log__dir')
    run(code, tmp_path, str(tmp_path / "logs"))
    first, _ = map(json.loads, log_in(tmp_path / "logs"))
    assert (first["flink-job-id"], first["process"], first["message"]) == (
        "abc",
        "driver",
        "of a job",
    )


@pytest.mark.parametrize(
    ("before", "seen"),
    [
        ("", []),
        ("logging.basicConfig(format='%(message)s')", []),
        ("logging.basicConfig(format='%(message)s', level='INFO')", ["told"]),
        (
            "logging.basicConfig(format='%(message)s'); own.parent.setLevel('INFO')",
            ["told"],
        ),
        (
            "logging.basicConfig(format='%(message)s'); logging.getLogger('penstock').setLevel(10)",
            ["told", "detail"],
        ),
    ],
)
def test_the_program_sees_of_penstock_what_its_own_settings_ask_for(tmp_path, before, seen):
    """Whether it sets levels before the first job or after it."""
    say = "\nown.info('told'); own.debug('detail')\n"
    told = [
        run(f"{before}\nstart(){say}", tmp_path).stderr.split(),
        run(f"start()\n{before}{say}", tmp_path).stderr.split(),
    ]
    assert told == [seen, seen]


def test_the_log_of_a_program_goes_with_it_unless_it_has_a_folder(tmp_path):
    run("print(start())", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_warned_of_and_nothing_else_happens(tmp_path):
    (tmp_path / "file").write_text("")
    done = run("assert start(env__log__dir=sys.argv[1]) == ''", tmp_path, str(tmp_path / "file/x"))
    assert "the driver has no log file" in done.stderr
    assert "env.log.dir" in done.stderr


def test_a_second_job_writes_to_the_log_of_the_first(tmp_path):
    code = "a = start(env__log__dir=sys.argv[1]); b = start(); own.info('x'); assert a == b"
    run(code, tmp_path, str(tmp_path / "logs"))
    assert len(log_in(tmp_path / "logs")) == 1


@pytest.fixture
def log(tmp_path):
    """The log of this process, in a folder of its own."""
    from penstock.engine.hosting.reporting.logs.settings import LogSettings

    driver.stop()
    yield driver.start(LogSettings(directory=str(tmp_path / "logs")))
    driver.stop()


def test_it_is_read_as_those_of_taskmanagers_are(log):
    import logging

    logging.getLogger("penstock.engine.hosting").info("a line")
    (file,) = log_folder().list().files
    assert (
        log_folder().read(ReadLog(file.name)).data.endswith(b"penstock.engine.hosting - a line\n")
    )


def test_after_its_end_nothing_is_logged_and_levels_are_as_before(log):
    import logging

    assert logging.getLogger("penstock").isEnabledFor(logging.INFO)
    driver.stop()
    assert log_folder().list().files == ()
    assert logging.getLogger("penstock").level == logging.NOTSET
