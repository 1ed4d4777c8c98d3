"""The same workloads in other systems: programs, their environments, data, and one command that runs all beside ours."""
