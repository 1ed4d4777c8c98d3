"""Shows and steers running jobs: facts and diagnosis, REST, reporters, history, sessions, autoscaler, command line. Never on executors."""
