"""For all tests: how long an example takes says nothing of it, and how many there are is the run's affair."""

import os

from hypothesis import settings

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "50"))
"""Of each law that does not say so itself. New ones in every run."""

settings.register_profile("penstock", deadline=None, max_examples=EXAMPLES)
settings.load_profile("penstock")
