"""The control plane: deterministic state machines, event in, effects out; no clock, no I/O."""
