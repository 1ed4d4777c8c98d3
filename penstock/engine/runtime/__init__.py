"""The data plane: single-threaded, steppable, per batch; waiting and waking come through ports."""
