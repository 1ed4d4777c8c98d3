"""For all tests: how long an example takes says nothing of it."""

from hypothesis import settings

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
