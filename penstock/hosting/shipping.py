"""Archives for Spark's Python workers, sent once for a job. See `worker_imports`."""

from __future__ import annotations

import hashlib

from pyspark import SparkContext, cloudpickle

from penstock.hosting import worker_imports
from penstock.hosting.package_archive import package_archive


def ship(context: SparkContext, modules: bytes) -> worker_imports.Archives:
    """Penstock and the program's own modules (a zip, or empty). Who ships destroys `contents` when the job is over."""
    cloudpickle.register_pickle_by_value(worker_imports)
    archives = [package_archive(), modules] if modules else [package_archive()]
    names = tuple(hashlib.sha256(one).hexdigest()[:16] for one in archives)
    return worker_imports.Archives(names, context.broadcast(tuple(archives)))
