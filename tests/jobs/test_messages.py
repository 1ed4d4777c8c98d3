"""The commonest accidents: one sentence first, the program's own line, and no frames of Penstock."""

import re
import socket
import subprocess
import sys
from operator import itemgetter

import pytest

from penstock.common import Configuration, Row, Types
from penstock.datastream import (
    CoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.engine.model.errors import JobExecutionError
from penstock.testing import CollectingSink, MiniCluster
from tests.tools.waiting import wait_until

HERE = "test_messages.py"
OF_PENSTOCK = re.compile(r'File "[^"]*[/\\]penstock[/\\](?!tests)')


class ReturnsANumber(ProcessFunction):
    def process_element(self, value, ctx):
        return value


class ReturnsANumberByKey(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return value


class ReturnsANumberByWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        return 7


class ReturnsARow(KeyedProcessFunction):
    def process_element(self, value, ctx):
        return Row(value, 1)


class ReturnsAText(ProcessFunction):
    def process_element(self, value, ctx):
        return f"text {value}"


class ReturnsATextByTimer(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(0)

    def on_timer(self, timestamp, ctx):
        return "text"


class ReturnsADictByWindow(ProcessWindowFunction):
    def process(self, key, context, elements):
        return {"count": 2}


class ReturnsATextOfTwo(CoProcessFunction):
    def process_element1(self, value, ctx):
        return "text"

    def process_element2(self, value, ctx):
        return "text"


NONE_KEY = (
    rf"TypeError: the key selector of key_by, built at .*{HERE}:\d+, returned None for the record 7"
)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def values(env):
    return env.from_collection([7, 8])


ACCIDENTS = {
    "no yield": (
        lambda env: values(env).process(ReturnsANumber()),
        r"TypeError: the function returned 7, of type int; expected .*`yield`",
    ),
    "no yield, keyed": (
        lambda env: values(env).key_by(lambda v: v).process(ReturnsANumberByKey()),
        r"TypeError: the function returned 7, of type int; expected .*`yield`",
    ),
    "no yield in a window": (
        lambda env: (
            values(env).key_by(lambda v: 1).count_window(2).process(ReturnsANumberByWindow())
        ),
        r"TypeError: the function returned 7, of type int; expected .*`yield`",
    ),
    "no yield of a text": (
        lambda env: values(env).process(ReturnsAText()),
        r"TypeError: the function returned 'text 7', of type str; expected .*`yield`",
    ),
    "no yield of a row": (
        lambda env: values(env).key_by(lambda v: v).process(ReturnsARow()),
        r"TypeError: the function returned <Row\(7, 1\)>, of type Row; expected .*`yield`",
    ),
    "no yield in a timer": (
        lambda env: values(env).key_by(lambda v: v).process(ReturnsATextByTimer()),
        r"TypeError: the function returned 'text', of type str; expected .*`yield`",
    ),
    "no yield of a dict in a window": (
        lambda env: values(env).key_by(lambda v: 1).count_window(2).process(ReturnsADictByWindow()),
        r"TypeError: the function returned \{'count': 2\}, of type dict; expected .*`yield`",
    ),
    "no yield of two inputs": (
        lambda env: values(env).connect(values(env)).process(ReturnsATextOfTwo()),
        r"TypeError: the function returned 'text', of type str; expected .*`yield`",
    ),
    "no list": (
        lambda env: values(env).flat_map(lambda v: v),
        r"TypeError: the function returned 7, of type int; expected .*return a list",
    ),
    "wrong type": (
        lambda env: values(env).map(lambda v: "text", Types.INT()).rebalance().map(lambda v: v),
        r"TypeError: .*type str.*Integer.*'text'",
    ),
    "a None key": (
        lambda env: values(env).key_by(lambda v: None).map(lambda v: v),
        NONE_KEY,
    ),
    "a None key of a declared type": (
        lambda env: values(env).key_by(lambda v: None, Types.STRING()).map(lambda v: v),
        NONE_KEY,
    ),
    "an error in a lambda": (
        lambda env: values(env).map(lambda v: 1 / (v - 7)),
        r"ZeroDivisionError: division by zero",
    ),
}


def environment(configuration=None):
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    return env.use_executor(MiniCluster(1).executor())


def told(env, stream) -> str:
    stream.print()
    with pytest.raises(JobExecutionError) as caught:
        env.execute()
    return str(caught.value)


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_the_first_line_says_what_is_wrong_and_the_programs_line_follows(accident):
    build, sentence = ACCIDENTS[accident]
    env = environment()
    text = told(env, build(env))
    first, _, rest = text.partition("\n")
    assert re.match(sentence, first)
    assert re.search(rf"{HERE}:\d+|{HERE}\", line \d+", rest)
    assert not OF_PENSTOCK.search(text)
    assert text.count(first) == 1


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    "end", [lambda keyed: keyed.reduce(lambda a, b: a), lambda keyed: keyed.sum(0)]
)
def test_a_none_key_is_told_in_batch_too_where_records_are_combined_first(end, count):
    """The function is tried with three records of a key before it combines."""
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    pairs = env.from_collection([(7, "k")] * count + [(8, None)])
    text = told(env, end(pairs.key_by(lambda pair: pair[1])))
    assert re.match(NONE_KEY.replace("7", r"\(8, None\)"), text)
    assert not OF_PENSTOCK.search(text)


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("key", [lambda pair: pair[1], itemgetter(1)], ids=["read", "called"])
def test_in_batch_the_record_of_a_none_key_is_the_one_that_is_shown(key, count):
    """Not the last record that went through, nor the last of its batch."""
    env = environment().set_runtime_mode(RuntimeExecutionMode.BATCH)
    pairs = env.from_collection([(7, "k")] * count + [(8, None), (9, "k")])
    text = told(env, pairs.key_by(key).reduce(lambda a, b: a, combine=True))
    assert re.match(NONE_KEY.replace("7", r"\(8, None\)"), text)
    assert re.findall(r"at record: +(.*)", text) == ["(8, None)"]


def test_too_many_fields_are_told_with_both_numbers():
    env = environment()
    row_type = Types.ROW([Types.INT(), Types.INT()])
    text = told(env, values(env).map(lambda v: Row(v, v, v), row_type).rebalance().map(str))
    assert re.match(r".*3 fields.*has 2", text.partition("\n")[0])
    assert not OF_PENSTOCK.search(text)


def test_a_refused_socket_is_told_with_host_port_and_line():
    port = free_port()
    env = environment()
    text = told(env, env.socket_text_stream("127.0.0.1", port))
    first = text.partition("\n")[0]
    assert f"'127.0.0.1', port {port}" in first and "refused" in first
    assert re.search(rf"built at: .*{HERE}:\d+", text)
    assert not OF_PENSTOCK.search(text) and "socket.py" not in text


def test_the_full_error_has_penstocks_frames_too():
    configuration = Configuration()
    configuration.set_string("penstock.errors.full", "true")
    env = environment(configuration)
    text = told(env, values(env).map(lambda v: 1 / (v - 7)))
    assert text.startswith("ZeroDivisionError") and OF_PENSTOCK.search(text)


PROGRAM = """
import sys
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import MiniCluster

configuration = Configuration()
configuration.set_string("penstock.errors.full", sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.use_executor(MiniCluster(1).executor())
env.from_collection([1]).map(lambda v: v / 0).print()
env.execute()
"""


def ended(tmp_path, is_full: str) -> str:
    path = tmp_path / "my_job.py"
    path.write_text(PROGRAM)
    command = [sys.executable, path, is_full]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    return done.stderr


def test_what_ends_a_program_is_shown_without_penstocks_frames(tmp_path):
    text = ended(tmp_path, "false")
    assert not OF_PENSTOCK.search(text)
    assert 'my_job.py", line 12, in <module>\n    env.execute()' in text
    assert 'my_job.py", line 11, in <lambda>' in text
    assert OF_PENSTOCK.search(ended(tmp_path, "true"))


REFUSED = {
    "a wrong type": (
        "from_collection([1, 'a'], Types.INT())",
        "TypeError: from_collection: a value",
    ),
    "two parameters": ("from_collection([1]).map(lambda a, b: a)", "TypeError: Map, built at"),
    "no sink": ("from_collection([1]).add_sink(7)", "TypeError: add_sink got int"),
}
MISTAKE = """
from penstock.common import Types
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.{}
"""


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_is_refused_while_the_program_is_built_has_the_programs_line_alone(tmp_path, mistake):
    line, said = REFUSED[mistake]
    path = tmp_path / "my_job.py"
    path.write_text(MISTAKE.format(line))
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    first, where, source, *rest = done.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert where == f'  File "{path}", line 6, in <module>'
    assert source == f"    env.{line}"
    assert [text for text in rest if set(text) - set(" ^~")] == rest[-1:]
    assert rest[-1].startswith(said)


def test_a_hook_of_the_program_stays(monkeypatch):
    def own(*_):
        raise AssertionError

    monkeypatch.setattr(sys, "excepthook", own)
    environment()
    assert sys.excepthook is own


ONCE = """
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.testing import MiniCluster

env = StreamExecutionEnvironment.get_execution_environment()
env.use_executor(MiniCluster(1).executor())
failing = env.from_collection([1]).map(lambda v: v / 0)
"""
ENDS = {
    "execute": "failing.print()\nenv.execute()",
    "collect": "print(list(failing.execute_and_collect()))",
    "BATCH": "env.set_runtime_mode(RuntimeExecutionMode.BATCH)\nfailing.print()\nenv.execute()",
    "collect in BATCH": "env.set_runtime_mode(RuntimeExecutionMode.BATCH)\n"
    "print(list(failing.execute_and_collect()))",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_failing_job_shows_its_error_once(tmp_path, end):
    path = tmp_path / "my_job.py"
    path.write_text(ONCE + ENDS[end])
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("ZeroDivisionError") == 1
    assert "penstock: job FAILED" in done.stderr


def failing_results(env):
    return values(env).map(lambda v: 1 / (v - 7)).execute_and_collect()


def until_told(capsys) -> str:
    """What the console has said up to the end of the job. Its status changes a moment before."""
    said = []

    def is_told() -> bool:
        said.append(capsys.readouterr().err)
        return "job FAILED" in "".join(said)

    wait_until(is_told, "the console tells nobody that the job has failed")
    return "".join(said)


def ended_with_error(client) -> None:
    """All that the console has to say is said when this returns."""
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        client.get_job_execution_result().result()


def test_the_console_tells_the_error_of_a_job_that_nobody_waits_for(capsys):
    env = environment()
    values(env).map(lambda v: 1 / (v - 7)).print()
    client = env.execute_async()
    assert "job FAILED: ZeroDivisionError: division by zero" in until_told(capsys)
    ended_with_error(client)


def test_an_error_between_two_reads_comes_with_the_second_and_not_on_the_console(capsys):
    with failing_results(environment()) as results:
        said = until_told(capsys)
        with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
            next(results)
        ended_with_error(results.get_job_client())
    said += capsys.readouterr().err
    assert "job FAILED; the error comes where the program reads its results" in said
    assert "ZeroDivisionError" not in said


def test_an_error_that_the_program_does_not_read_is_told_on_the_console_in_the_end(capsys):
    with failing_results(environment()):
        assert "ZeroDivisionError" not in until_told(capsys)
    assert capsys.readouterr().err.count("FAILED: ZeroDivisionError: division by zero") == 1


def test_who_has_asked_for_the_jobs_result_is_given_its_error_once(capsys):
    env = environment()
    values(env).map(lambda v: 1 / (v - 7)).print()
    client = env.execute_async()
    result = client.get_job_execution_result()
    said = until_told(capsys)
    with pytest.raises(JobExecutionError, match="ZeroDivisionError"):
        result.result()
    del client, result
    assert "ZeroDivisionError" not in said + capsys.readouterr().err


def test_a_sink_that_collects_is_not_given_the_error_for_the_program(capsys):
    env = environment()
    values(env).map(lambda v: 1 / (v - 7)).sink_to(CollectingSink())
    client = env.execute_async()
    assert "job FAILED: ZeroDivisionError: division by zero" in until_told(capsys)
    ended_with_error(client)


UNREAD = """
import sys, threading
told = threading.Event()

class Watched:
    def write(self, text):
        sys.__stderr__.write(text)
        if "job FAILED" in text:
            told.set()

    def flush(self):
        sys.__stderr__.flush()

sys.stderr = Watched()
results = failing.execute_and_collect()
told.wait()
"""


def test_an_error_that_nobody_reads_is_told_when_the_program_ends(tmp_path):
    path = tmp_path / "my_job.py"
    path.write_text(ONCE + UNREAD)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=True)
    assert done.stderr.count("ZeroDivisionError") == 1
