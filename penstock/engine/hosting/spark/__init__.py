"""Where Spark is asked for a task: tasks that become TaskManagers, the session, its sizes and slots, checks of its settings."""
