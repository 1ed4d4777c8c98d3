"""Stacks of threads as texts, and samples of them as the trees of flame graphs."""
