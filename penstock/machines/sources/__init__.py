"""Which reader gets which split again, and how far aligned sources may run."""
