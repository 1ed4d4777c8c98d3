"""What jobs that take checkpoints share."""

import pytest

from tests.tools.programs.checkpoint_programs import Stage


@pytest.fixture
def stage(request):
    """Where the test's own program stands still, and what it tells."""
    return Stage(request.node.name)
