"""What each benchmark measures: one module for each name of `python -m benchmarks`."""
