"""A session in the simulator: several jobs of one Dispatcher share workers, and another driver goes on with them.

The Dispatcher, the WorkerPool, and the shell and machines of each job are the real ones. Clients, processes of workers, the store of
high availability and the driver's own process are imitated. Source: docs/internals/simulation.md.

| module | what it holds |
|---|---|
| `plan` | what a seed means: jobs, clients, workers, and what breaks |
| `expectations` | what must hold, by name |
| `places`, `workers` | places that Spark has, and the processes that run there |
| `store` | what outlives a driver |
| `shared_cluster` | one job, whose TaskManagers are hosted by workers |
| `driver` | the process of one session |
| `client` | submits a job, and says that it lives |
| `world` | all of it together: one seed from start to end |
| `command` | many seeds, and their results |
"""
