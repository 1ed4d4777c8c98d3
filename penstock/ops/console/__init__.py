"""What a program prints of its jobs: log lines, progress, the picture of a job, a notebook's cell."""
