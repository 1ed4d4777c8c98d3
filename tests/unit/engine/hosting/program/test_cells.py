"""Which notebook cell runs: by the front end's name for it, or by the name of its code."""

import builtins
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.engine.hosting.program.executor import running_cell


class Shell:
    def __init__(self) -> None:
        self.user_ns = {"running_cell": running_cell}
        self.execution_count = 1
        self.parent_header: dict = {}

    def run(self, code: str, name: str):
        """As IPython does it: in the user's namespace, under a name of the cell's own."""
        exec(compile(code, name, "exec"), self.user_ns)
        self.execution_count += 1
        return self.user_ns["found"]


@pytest.fixture
def shell(monkeypatch):
    made = Shell()
    monkeypatch.setattr(builtins, "get_ipython", lambda: made, raising=False)
    return made


CALL = "def submit():\n    return running_cell()\nfound = submit()\n"


def test_without_a_notebook_there_is_no_cell():
    assert running_cell() is None


def test_a_cell_that_runs_again_has_the_same_key_and_another_run(shell):
    first, again = shell.run(CALL, "cell-a"), shell.run(CALL, "cell-a")
    assert first.key == again.key
    assert first.run != again.run


def test_another_cell_has_another_key_also_if_it_calls_a_function_of_the_first(shell):
    first = shell.run(CALL, "cell-a")
    assert shell.run("found = submit()", "cell-b").key != first.key


def test_an_edited_cell_keeps_the_name_that_the_front_end_gives_it(shell):
    shell.parent_header = {"metadata": {"cellId": "c1"}}
    first, edited = shell.run(CALL, "cell-a"), shell.run(CALL + "# more", "cell-x")
    assert first.key == edited.key == "c1"


@pytest.mark.parametrize("space", ["{'running_cell': running_cell}", "globals()"])
def test_each_script_that_a_cell_runs_has_a_key_of_its_own(shell, space):
    """As `%run $script` runs it, also with -i: cells with the same code have the same name if the front end gives them none."""
    code = f"space = {space}\nexec(compile(CALL, script, 'exec'), space)\nfound = space['found']"
    keys = []
    for script in ("/home/me/a.py", "/home/me/b.py", "/home/me/a.py"):
        shell.user_ns.update(script=script, CALL=CALL)
        keys.append(shell.run(code, "cell-a").key)
    assert keys[0] == keys[2]
    assert len({*keys, shell.run(CALL, "cell-a").key}) == 3


def test_code_outside_of_cells_is_in_no_cell(shell):
    assert running_cell() is None


def test_what_another_thread_starts_belongs_to_no_cell(shell):
    with ThreadPoolExecutor(1) as others:
        shell.user_ns["others"] = others
        assert shell.run(CALL + "found = others.submit(submit).result()", "cell-a") is None
