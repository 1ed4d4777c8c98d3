"""Runs programs: plain data, compiler, state machines, runtime of tasks, hosting on Spark. Imports no other house."""
