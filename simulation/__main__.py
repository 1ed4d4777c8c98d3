"""`python -m simulation`, and `python -m simulation autoscaler`."""

import sys

from simulation import runner
from simulation.autoscaler import table

if __name__ == "__main__":
    if sys.argv[1:2] == ["autoscaler"]:
        sys.exit(table.main(sys.argv[2:]))
    sys.exit(runner.main())
