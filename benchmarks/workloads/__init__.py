"""What the benchmarks run: jobs, floors, and stand-ins for what is not measured."""
