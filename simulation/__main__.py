"""`python -m simulation`."""

import sys

from simulation.runner import main

if __name__ == "__main__":
    sys.exit(main())
