"""The audit: a job under faults, and a check of every record that it committed. `make chaos`, `python -m audit --help`.

A generator writes a durable log (`event_log`); a job (`job`) reads it into keyed state, timers, windows, a join, and two kinds of
sinks; a controller (`controller`) kills, stops, cuts and breaks what runs the job (`faults`, `drivers`); an auditor (`auditor`), a process of its own
that shares no code with Penstock, compares what is committed with the log.
"""
