"""The options, one object each, in a file per subject. Readers ask for them by name: `settings.get(TaskOptions.PROGRESS_TIMEOUT)`.

`catalogue.py` has them all by key. docs/reference/configuration.md is made from them.
"""
