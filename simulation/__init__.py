"""Simulator: the driver's own control plane with simulated TaskManagers, network and clock, under one seed.

`python -m simulation --seeds 2000` runs seeds and checks invariants after every event. The driver's
side is the real one: `engine/hosting/jobmanager/machine_shell.py` (with its JobMaster and ResourceManager)
and `engine/hosting/jobmanager/taskmanager_watch.py` run unchanged, on a clock that stands still until the
next event. TaskManagers are imitated, except for their `engine/machines/taskmanager/task_executor.py`.
Source: FoundationDB's simulation, TigerBeetle's VOPR.

| module | what it holds |
|---|---|
| `clock` | time, the queue of events, random numbers; an event loop for the driver's shell |
| `graphs` | random job graphs |
| `scenario` | what a seed means: graph, settings, faults and their moments |
| `network` | one connection per TaskManager, and what can happen to it |
| `taskmanager`, `tasks` | a TaskManager: slots, tasks, results |
| `barriers` | barriers between tasks, and the snapshots they cause |
| `checkpoints` | stores checkpoints, and checks the invariants of their content |
| `master` | the driver: shell, watch, and what they are wired to |
| `faults` | carries faults out |
| `invariants` | what must hold, by name |
| `world` | all of it together: one seed from start to end |
| `summary`, `runner` | many seeds on two processes, and their results |
"""
