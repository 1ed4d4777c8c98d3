"""Logs of TaskManagers in executors that are processes of their own, fetched through the driver."""

import json
import logging
import os
import re
import signal
import threading
from collections import Counter

import pytest

from penstock.common import RestartStrategies, Types
from penstock.engine.hosting.jobmanager.questions import LAST_LINES_NAME
from penstock.engine.hosting.program.executor import ClusterExecutor
from penstock.engine.hosting.program.spark_host import SparkHost
from penstock.engine.model.ids import ResourceId
from penstock.engine.model.messages import ReadLog
from penstock.engine.model.states import JobStatus
from penstock.ops.cli.cli import main
from penstock.ops.cli.remote.logs import GAP
from tests.spark.processes import taskmanagers, taskmanagers_left
from tests.spark.programs import environment
from tests.spark.waiting import until_there
from tests.tools.hosting.rest import SETTINGS, rest_server
from tests.tools.waiting import wait_until

pytestmark = pytest.mark.spark
ME, NEXT = ResourceId("tm-1"), ResourceId("tm-2")
VALUES = 42
PLACE = r"\[job={job} operator=Prices subtask=1/1 attempt={attempt}\]"


def holding(folder):
    """Logs and prints for each value. Before the last one it waits for a file."""

    def price(value):
        log = logging.getLogger("app.prices")
        log.debug("detail of %d", value)
        log.info("price of %d", value)
        log.warning("no price for %d", value)
        print("looked at", value)
        if value == VALUES - 1:
            (folder / "entered").touch()
            until_there(folder / "go on")
        return value

    return price


def held_job(folder, **settings):
    """Returns: the job, which stands still before its last value."""
    env = environment(1, **settings).use_executor(ClusterExecutor(SparkHost()))
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    values = env.from_collection(list(range(VALUES)), Types.LONG()).rebalance()
    values.map(holding(folder)).name("Prices").map(lambda _: None).filter(bool).print()
    control = env.plumbing.submit("prices")
    until_there(folder / "entered")
    return control


def whole(control, resource_id, **question):
    return control.read_log(resource_id, ReadLog(**question)).result(30).data.decode()


def go_on(folder, control):
    (folder / "go on").touch()
    assert control.wait(60).status is JobStatus.FINISHED


def test_log_stdout_list_and_threads_of_a_taskmanager_come_through_the_driver(
    spark_cluster, tmp_path
):
    control = held_job(tmp_path)
    log = whole(control, ME)
    place = PLACE.format(job=control.job_id, attempt=0)
    for line in (
        rf"^[\d-]{{10}} [\d:,]{{12}} INFO    app\.prices {place} - price of 7$",
        rf" WARNING app\.prices {place} - no price for 7$",
        rf" INFO    stdout {place} - looked at 7$",
        r" INFO    penstock\.engine\.hosting\.taskmanager\.\w+ - job=.*INITIALIZING->RUNNING$",
    ):
        assert len(re.findall(line, log, re.MULTILINE)) >= 1, line
    assert "detail of" not in log
    logged = re.findall(r"price of (\d+)$", log, re.MULTILINE)
    assert logged == [str(value) for value in range(VALUES)]

    looked = [line for line in whole(control, ME, is_stdout=True).splitlines() if "looked" in line]
    assert looked == [f"looked at {value}" for value in range(VALUES)]

    files = control.log_files(ME).result(30).files
    name = f"penstock-taskmanager-{control.job_id[:8]}-tm-1"
    assert [file.name for file in files] == [f"{name}.log", f"{name}.out"]
    end = whole(control, ME, name=f"../{name}.out", offset=-10)
    assert end == f"{looked[-1]}\n"[-10:]

    dump = {one.name: one.text for one in control.thread_dump(ME).result(30).threads}
    (task,) = [name for name in dump if name.startswith("Prices")]
    assert task.endswith(" (1/1)#0")
    assert ".until_there(waiting.py:" in dump[task]
    go_on(tmp_path, control)


def test_the_last_lines_of_a_killed_taskmanager_are_kept(spark_cluster, tmp_path):
    assert not taskmanagers_left(), "else it is not the only one"
    control = held_job(tmp_path)
    (tmp_path / "entered").unlink()
    (process,) = taskmanagers()
    process.send_signal(signal.SIGKILL)
    until_there(tmp_path / "entered")
    lost = control.log_files(ME).result(30)
    assert [file.name for file in lost.files] == [LAST_LINES_NAME]
    lines = whole(control, ME).splitlines()
    place = PLACE.format(job=control.job_id, attempt=0)
    assert re.search(rf" INFO    stdout {place} - looked at {VALUES - 1}$", lines[-1])
    assert not any("attempt=1]" in line for line in lines)
    assert re.search(PLACE.format(job=control.job_id, attempt=1), whole(control, NEXT))
    go_on(tmp_path, control)
    assert whole(control, ME).splitlines() == lines


def test_a_signal_that_ends_a_taskmanager_is_a_line_of_its_log(spark_cluster, tmp_path):
    assert not taskmanagers_left(), "else it is not the only one"
    control = held_job(tmp_path)
    (tmp_path / "entered").unlink()
    (process,) = taskmanagers()
    process.send_signal(signal.SIGTERM)
    until_there(tmp_path / "entered")
    assert "RECEIVED SIGNAL 15: SIGTERM. Shutting down as requested." in whole(control, ME)
    go_on(tmp_path, control)


def test_the_console_shows_warnings_once_and_then_how_often(spark_cluster, tmp_path, capfd):
    control = held_job(tmp_path)
    go_on(tmp_path, control)
    shown = [line for line in capfd.readouterr().err.splitlines() if "app.prices" in line]
    first, rest = shown
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING app\.prices \[Prices 1\]: no price for 0", first)
    text = f"no price for {VALUES - 1} ... {VALUES - 1} more times"
    assert rest.endswith(f" WARNING app.prices [Prices 1]: {text}")


def test_levels_of_the_program_and_json_and_a_folder_count_on_workers(
    spark_cluster, tmp_path, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("app.prices"), "level", logging.DEBUG)
    logs = tmp_path / "logs"
    settings = {"env.log.dir": str(logs), "penstock.log.format": "json"}
    control = held_job(tmp_path, **settings)
    go_on(tmp_path, control)
    (path,) = logs.glob("penstock-taskmanager-*.log")
    lines = list(map(json.loads, path.read_text("utf-8").splitlines()))
    mine = [line for line in lines if line["logger"] == "app.prices"]
    assert Counter(line["level"] for line in mine) == {
        "DEBUG": VALUES,
        "INFO": VALUES,
        "WARNING": VALUES,
    }
    assert {line["flink-job-id"] for line in lines} == {control.job_id}
    assert {(line["subtask"], line["attempt"]) for line in mine} == {(1, 0)}
    assert os.stat(path).st_mode & 0o777 == 0o600


def looked_at(lines, log, place):
    """The values of which a log tells, in the order of its lines."""
    texts = [line["line"] for line in lines if line["log"] == log]
    found = (re.search(rf"{place} - looked at (\d+)$", text) for text in texts)
    return [int(one[1]) for one in found if one]


def test_logs_are_followed_past_a_killed_taskmanager(spark_cluster, tmp_path, capsys, monkeypatch):
    """Each line of the one that is killed, and of the one that takes its place, is shown once."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    codes, told = [], []

    def is_shown():
        told.append(capsys.readouterr().out)
        return f' - looked at {VALUES - 1}"}}' in "".join(told)

    assert not taskmanagers_left(), "else it is not the only one"
    with rest_server():
        control = held_job(tmp_path, **SETTINGS)
        (tmp_path / "entered").unlink()
        arguments = ["logs", control.job_id, "-f", "-n", "100000", "--interval", "0.2", "--json"]
        follows = threading.Thread(target=lambda: codes.append(main(arguments)), daemon=True)
        follows.start()
        try:
            wait_until(is_shown, "the log is not shown")
            (process,) = taskmanagers()
            process.send_signal(signal.SIGKILL)
            until_there(tmp_path / "entered")
            go_on(tmp_path, control)
            follows.join(60)
        finally:
            control.cancel()
    told.append(capsys.readouterr().out)
    assert codes == [0]
    lines = [json.loads(one) for one in "".join(told).splitlines() if one.startswith('{"log"')]
    for attempt, name in enumerate(("tm-1", "tm-2")):
        place = PLACE.format(job=control.job_id, attempt=attempt)
        assert looked_at(lines, f"{name}-{control.job_id[:6]}", place) == list(range(VALUES))
    assert GAP not in {line["line"] for line in lines}
    assert any(line["log"] == "driver" and "RESTARTING" in line["line"] for line in lines)
