"""What a TaskManager lends its tasks: directories, state backends, writers of snapshots, questions to the driver."""
