"""A program ends although daemon threads and finalizers log while the interpreter ends."""

import subprocess
import sys

from tests.tools.terminal import ROOT

_RUNS = 12
_PATIENCE_S = 30
PROGRAM = """
import logging, os, sys, threading, types
logging.basicConfig(stream=open(os.devnull, "w"), level=logging.INFO)
from penstock.engine.hosting.reporting.logs import driver
from penstock.engine.hosting.reporting.logs.settings import LogSettings

driver.start(LogSettings(directory=sys.argv[1]))
log = logging.getLogger("penstock.busy")

def busy():
    while True:
        log.info("x" * 20_000)

class Connection:
    def __del__(self, log=logging.getLogger("library").info, os=os):
        log("closed")

for _ in range(4):
    threading.Thread(target=busy, daemon=True).start()
sys.modules["held"] = types.ModuleType("held")
sys.modules["held"].connection = Connection()
log.info("the program is over")
"""


def test_a_program_ends_whose_threads_and_finalizers_log_while_it_ends(tmp_path):
    ends = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            cwd=ROOT,
            timeout=_PATIENCE_S,
            check=False,
        ).returncode
        for _ in range(_RUNS)
    ]
    assert ends == [0] * _RUNS
