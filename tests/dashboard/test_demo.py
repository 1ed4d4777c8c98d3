"""The demonstration: each of its switches shows its illness on the first screen, and a healthy job is healthy."""

import importlib.util
from pathlib import Path

import pytest

from penstock.hosting.minicluster import MiniCluster
from tests.tools.hosting.rest import SETTINGS, rest_server

pytestmark = pytest.mark.browser
PROGRAM = Path(__file__).parents[2] / "examples" / "demo.py"
ILLNESSES = {
    "slow-operator": "'price' limits the job",
    "skewed-key": "of 'total of each customer -> Filter -> Sink: Print to Std. Out' is skewed",
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
        job = env.execute_async("orders to totals")
        try:
            tab = look().at(server, f"#/jobs/{job.get_job_id()}").shows("RUNNING", ".badge")
            tab.page.get_by_role("switch", name=name).check()
            tab.shows(ILLNESSES[name], ".verdict")
            tab.page.get_by_role("switch", name=name).uncheck()
        finally:
            job.cancel().result()
