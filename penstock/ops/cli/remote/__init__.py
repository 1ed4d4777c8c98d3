"""The command line's commands for running jobs: they ask the REST server of a driver."""
