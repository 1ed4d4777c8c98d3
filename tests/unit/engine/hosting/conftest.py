"""What tests with a `FakeDriver` share."""

import pytest

from penstock.engine.model.checkpoints import TaskCheckpointing
from penstock.ops.operations import install
from tests.tools.hosting.fake_driver import FakeDriver
from tests.tools.programs.gated_program import Gate


@pytest.fixture
def gate(request):
    """How far the sources of the test may read."""
    made = Gate(request.node.name)
    yield made
    Gate.by_name.pop(made.name)


@pytest.fixture
def run(tmp_path):
    """Starts programs whose checkpoints go to the test's folder; cancels what runs still."""
    drivers = []

    def start(graph, restored=None, taskmanagers=1, **checkpointing):
        settings = TaskCheckpointing(str(tmp_path), **checkpointing)
        driver = FakeDriver(graph, settings, restored, taskmanagers)
        drivers.append(driver)
        return driver

    yield start
    for driver in drivers:
        driver.cancel()
        driver.close()


@pytest.fixture
def operations():
    """What the API registers when a program asks for its executor."""
    install()
