"""The demonstration: each of its switches shows its illness on the first screen, and a healthy job is healthy."""

import importlib.util
import threading
from pathlib import Path

import pytest

from penstock.engine.hosting.local.minicluster import MiniCluster
from tests.tools.hosting.rest import SETTINGS, rest_server

pytestmark = pytest.mark.browser
PROGRAM = Path(__file__).parents[2] / "examples" / "demo.py"
ILLNESSES = {
    "slow-operator": "'price' limits the job",
    "skewed-key": "of them with the key 7; 'check' waits for it.",
    "late-source": "of 'Source: market",
    "failing-function": "of 'check' has failed",
}


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ILLNESSES)
def test_a_switch_makes_the_job_ill_and_the_page_says_of_what(demo, look, tmp_path, name):
    demo.offer(tmp_path)
    assert set(demo.SWITCHES) == set(ILLNESSES)
    env = demo.environment(tmp_path, SETTINGS)
    env.use_executor(MiniCluster(2).executor())
    demo.totals(env, tmp_path)
    with rest_server(**{"penstock.web.switches": str(tmp_path)}) as server:
        job, tab = env.execute_async("orders to totals"), look()
        try:
            tab.at(server, f"#/jobs/{job.get_job_id()}").shows("RUNNING", ".badge")
            tab.page.get_by_role("switch", name=name).check()
            tab.shows(ILLNESSES[name], ".verdict")
            tab.page.get_by_role("switch", name=name).uncheck()
        finally:
            tab.page.goto("about:blank")  # Before its server ends.
            job.cancel().result()


def test_it_ends_in_peace_when_it_is_cancelled_on_its_page(demo, look, tmp_path, capfd):
    env = demo.environment(tmp_path, SETTINGS)
    env.use_executor(MiniCluster(2).executor())
    running = threading.Thread(target=demo.run, args=(env, tmp_path))
    with rest_server(**{"penstock.web.switches": str(tmp_path)}) as server:
        running.start()
        tab = look().at(server)
        tab.page.get_by_role("link", name="orders to totals").click()
        tab.shows("RUNNING", ".badge")
        tab.page.get_by_role("button", name="Cancel").press("Enter")
        tab.page.locator("dialog").get_by_role("button", name="Cancel").press("Enter")
        tab.shows("CANCELED", ".badge")
        running.join()
        tab.page.goto("about:blank")
    assert "The demonstration has ended." in capfd.readouterr().out
