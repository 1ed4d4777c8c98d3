"""The autoscaler on modelled jobs under load: `python -m simulation autoscaler`.

The autoscaler is the real one (`penstock/ops/autoscaler/rules`). The job is a model: queues, service rates, back-pressure, partitions,
skew, and the time that a rescale takes. Its noise comes from a seed.

| module | what it holds |
|---|---|
| `model` | the job: what it does in a step, and what is measured of it |
| `curves` | loads over time, and the job that each of them meets |
| `least` | the fewest slots that hold the bound of the lag, by trial on the model |
| `driving` | a job under a curve with the autoscaler, and what came of it |
| `table` | all curves, as a table |
"""
