"""`python -m simulation`, `python -m simulation session`, and `python -m simulation autoscaler`."""

import sys

from simulation import runner
from simulation.autoscaler import table
from simulation.session import command

if __name__ == "__main__":
    if sys.argv[1:2] == ["autoscaler"]:
        sys.exit(table.main(sys.argv[2:]))
    if sys.argv[1:2] == ["session"]:
        sys.exit(command.main(sys.argv[2:]))
    sys.exit(runner.main())
