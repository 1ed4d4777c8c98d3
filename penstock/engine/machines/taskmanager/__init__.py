"""The control plane of one TaskManager: its slots, the lives of its tasks, when a cancel becomes force."""
