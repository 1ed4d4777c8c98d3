"""For tasks whose next step is another process's: all that they share is a folder."""

import time
from pathlib import Path

PATIENCE_S = 60
_POLL_S = 0.02


def until_there(path):
    """Until somebody has made that file; a file system tells nobody, so it is asked again and again."""
    deadline = time.monotonic() + PATIENCE_S
    while not Path(path).exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(_POLL_S)
