"""Log files of the driver and of TaskManagers: where they lie, how records become lines, how files are rolled and read."""
