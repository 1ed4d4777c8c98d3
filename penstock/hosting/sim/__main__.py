"""`python -m penstock.hosting.sim`."""

import sys

from penstock.hosting.sim.runner import main

if __name__ == "__main__":
    sys.exit(main())
