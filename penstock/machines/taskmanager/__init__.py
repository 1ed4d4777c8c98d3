"""The control plane of a TaskManager: its slots, and what becomes of the tasks in them."""
