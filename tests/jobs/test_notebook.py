"""Cells of a real Jupyter kernel: what they show of a job, of its error and of its end."""

import re
from xml.etree import ElementTree as ET

import pytest

from tests.tools.notebook import Notebook

OF_PENSTOCK = re.compile(r'File "[^"]*[/\\]penstock[/\\]')
SETUP = """
import threading
import penstock
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import MiniCluster
from tests.tools.waiting import wait_until

cluster = MiniCluster(4)

def environment(**options):
    configuration = Configuration()
    for key, value in options.items():
        configuration.set_string("penstock." + key.replace("_", "."), value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    return env.use_executor(cluster.executor())

def environment_of(stream):
    return stream.get_execution_environment()

def divide(value):
    return 1 / (value - 2)

def slow(value):
    threading.Event().wait(0.01)  # As a call of a slow service does.
    return value

def endless():
    return environment().from_collection(range(1_000_000)).map(slow)

def names():
    return sorted(job.name for job in penstock.jobs())
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """One kernel for all tests of this file: it starts slowly."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
            patch.setenv(name, str(home / name.lower()))
        made = Notebook()
        assert made.run(SETUP).status == "ok"
        yield made
        made.close()


@pytest.fixture
def jobs(notebook):
    """The names of the jobs that run. All are ended behind the test."""

    def running() -> list[str]:
        return notebook.run("print(*names())").stdout.split()

    yield running
    ending = "for job in penstock.jobs():\n    job.cancel()"
    assert notebook.run(ending).status == "ok"


FAILING = "environment({options}).from_collection([1, 2, 3]).map(divide)"
ENDS = {
    "execute": "env = environment({options})\n"
    "env.from_collection([1, 2, 3]).map(divide).print()\n"
    "env.execute()",
    "collect": f"found = list({FAILING}.execute_and_collect())",
    "next": f"results = {FAILING}.execute_and_collect()\nfound = list(results)",
}


@pytest.mark.parametrize("end", ENDS)
def test_an_error_has_the_programs_frames_with_the_lines_of_their_cells(notebook, end):
    code = ENDS[end].format(options="")
    shown = notebook.run(code)
    text = "\n".join(shown.error)
    assert shown.status == "error"
    assert not OF_PENSTOCK.search(text)
    assert "    " + code.splitlines()[-1] in shown.error
    assert "    return 1 / (value - 2)" in shown.error
    assert "ZeroDivisionError" not in shown.stderr
    assert "Traceback" not in shown.stderr


def test_what_is_refused_while_a_job_is_built_has_the_cells_frames_alone(notebook):
    shown = notebook.run("environment().from_collection([1]).map(lambda a, b: a)")
    text = "\n".join(shown.error)
    assert shown.status == "error"
    assert not OF_PENSTOCK.search(text)
    assert "    environment().from_collection([1]).map(lambda a, b: a)" in shown.error
    assert text.count("TypeError") == 1
    own = notebook.run("def fails():\n    raise ValueError('mine')\nfails()")
    assert (own.status, "ValueError" in "\n".join(own.error)) == ("error", True)


def test_an_error_has_all_frames_if_the_program_wants_them(notebook):
    whole = notebook.run(ENDS["execute"].format(options="errors_full='true'"))
    assert whole.status == "error"
    assert any(OF_PENSTOCK.search(line) for line in whole.error)
    again = notebook.run(ENDS["execute"].format(options=""))
    assert not OF_PENSTOCK.search("\n".join(again.error))


def test_progress_is_told_in_lines_that_leave_the_output_as_it_is(notebook):
    code = (
        "env = environment(**{'console_line-interval': '20 ms'})\n"
        "env.from_collection(range(30)).map(slow).print()\n"
        "result = env.execute('told')"
    )
    shown = notebook.run(code)
    assert shown.stdout == "".join(f"{number}\n" for number in range(30))
    assert "\x1b" not in shown.stdout + shown.stderr
    lines = shown.stderr.splitlines()
    assert all(line.startswith("penstock: ") for line in lines)
    assert len(lines) > 2


INTERRUPTED = {
    "execute": """
env = environment()
env.from_collection(range(1_000_000)).map(slow).print()
env.execute('interrupted')
""",
    "for": """
for value in endless().execute_and_collect('interrupted'):
    print(value)
""",
    "list": """
held = endless().execute_and_collect('interrupted')
print(next(held))
found = list(held)
""",
}
UNTIL_THEY_HAVE_ENDED = "wait_until(lambda: not penstock.jobs(), 'jobs do not end')"


@pytest.mark.parametrize("cell", INTERRUPTED)
def test_an_interrupted_cell_cancels_the_job_that_it_waits_for(notebook, jobs, cell):
    code = INTERRUPTED[cell]
    shown = notebook.run(code, interrupt_if=lambda shown: "0\n" in shown.stdout)
    assert shown.status == "error"
    assert "KeyboardInterrupt" in "\n".join(shown.error)
    assert notebook.run(UNTIL_THEY_HAVE_ENDED).status == "ok"
    after = "print(sum(environment().from_collection([1, 2]).execute_and_collect()))"
    assert notebook.run(after).stdout == "3\n"


START = """
env = environment()
env.from_collection(range(1_000_000)).map(slow).filter(lambda value: value < 0).print()
client = env.execute_async('{}')
"""


@pytest.mark.parametrize("name", ["the front end's name", None])
def test_a_cell_that_runs_again_takes_the_place_of_its_jobs(notebook, jobs, name):
    code = START.format("cell")
    assert notebook.run(code, name).status == "ok"
    again = notebook.run(code, name)
    assert "the cell runs again, so the job 'cell'" in again.stderr
    assert jobs() == ["cell"]
    other = notebook.run(code + "# another", name and "another")
    assert "cell runs again" not in other.stderr
    assert jobs() == ["cell", "cell"]


def test_scripts_that_cells_run_take_the_place_of_their_own_jobs_only(notebook, jobs, tmp_path):
    """Without a name of the front end, cells with the same code are one cell."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(START.format(name))
    for name in ("one", "two", "one"):
        notebook.run(f"script = r'{tmp_path / name}.py'")
        assert notebook.run("%run -i $script").status == "ok"
    assert jobs() == ["one", "two"]


SHOWN = """
running = environment().from_collection(range({count})).map(slow).name("<b>slow</b> & co")
running.filter(lambda value: value < 0).name("none").print().name("out")
client = environment_of(running).execute_async("<i>shown</i>")
"""


def rows_of(page):
    """The cells of each row of the one table of a page, without its styles: as where they are not allowed."""
    parsed = ET.fromstring(re.sub("<style>.*?</style>", "", page, flags=re.DOTALL))
    (table,) = parsed.iter("table")
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def test_a_job_is_shown_in_its_cell_and_drawn_again_until_it_ends(notebook, jobs):
    code = SHOWN.format(count=300) + "display(client)\nclient.get_job_execution_result().result()\n"
    shown = notebook.run(code + "None")
    assert (shown.status, shown.error) == ("ok", [])
    ((place, pictures),) = shown.pictures.items()
    assert place.startswith("penstock-")
    assert len(pictures) > 2
    first, last = pictures[0]["text/html"], pictures[-1]["text/html"]
    assert "FINISHED" not in first
    assert "&lt;i&gt;shown&lt;/i&gt;</b>: " in last
    assert "FINISHED" in last
    assert "<p>The job has ended: FINISHED.</p>" in last
    assert "<i>" not in last
    assert "<script" not in last
    titles, *rows = rows_of(last)
    assert titles[:3] == ["vertex", "subtasks", "in/s"]
    assert [row[:2] for row in rows][0][1] == "1 FINISHED"
    assert "<b>slow</b> & co" in rows[0][0]
    assert "FINISHED" in pictures[-1]["text/plain"]


def test_a_client_at_the_end_of_a_cell_is_shown(notebook, jobs):
    shown = notebook.run(SHOWN.format(count=1_000_000) + "client")
    ((place, pictures),) = shown.pictures.items()
    assert place.startswith("penstock-")
    assert "<table>" in pictures[0]["text/html"]
    again = notebook.run("client")
    assert list(again.pictures) == [place]
    ended = notebook.run("client.cancel().result()")
    assert ended.status == "ok"


def test_a_cell_that_cancels_its_job_shows_the_end(notebook, jobs):
    code = SHOWN.format(count=1_000_000) + "display(client)\nclient.cancel().result()"
    (pictures,) = notebook.run(code).pictures.values()
    assert "<p>The job has ended: CANCELED.</p>" in pictures[-1]["text/html"]
