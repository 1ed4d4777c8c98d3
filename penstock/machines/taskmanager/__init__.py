"""The machines inside a TaskManager."""
