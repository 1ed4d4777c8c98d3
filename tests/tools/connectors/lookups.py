"""A lookup without a job: records go to the function as an async operator gives them, many at once, on one event loop."""

import asyncio

from penstock.engine.runtime.user_metrics import MetricGroup


class Context:
    """What the function's `open` asks for."""

    def __init__(self):
        self.metrics = MetricGroup()

    def get_index_of_this_subtask(self):
        return 0

    def get_metrics_group(self):
        return self.metrics


class Lookups:
    """Looks up batches of records, one batch after the other."""

    def __init__(self, function):
        self.context = Context()
        self.function = function
        function.open(self.context)

    def __enter__(self):
        self._runner = asyncio.Runner()
        return self

    def __exit__(self, *_):
        self.function.close()
        self._runner.close()

    def __call__(self, *records):
        """The results of each record."""

        async def together():
            return await asyncio.gather(*map(self.function.async_invoke, records))

        return self._runner.run(together())

    def figures(self):
        """The metrics of the cache by name."""
        found = {}
        for _, name, metric in self.context.metrics.walk():
            if hasattr(metric, "update"):
                metric.update()
            found[name] = dict(metric.numbers()).get("")
        return found
