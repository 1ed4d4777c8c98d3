"""Archives for Spark's Python workers, broadcast once for a job. See `worker_imports`."""

from __future__ import annotations

import hashlib

from pyspark import SparkContext, cloudpickle

from penstock.engine.hosting.shipping import worker_files, worker_imports
from penstock.engine.hosting.shipping.package_archive import package_archive
from penstock.engine.hosting.shipping.worker_files import WorkerFiles


def ship(
    context: SparkContext, modules: bytes, files: WorkerFiles | None = None
) -> worker_imports.Archives:
    """Broadcast Penstock and the program's own modules (a zip, or empty).

    `files`: what else the program brings for its functions. The caller destroys `contents` when the
    job is over.
    """
    cloudpickle.register_pickle_by_value(worker_imports)
    cloudpickle.register_pickle_by_value(worker_files)
    archives = [package_archive(), modules] if modules else [package_archive()]
    names = tuple(hashlib.sha256(one).hexdigest()[:16] for one in archives)
    contents = context.broadcast(tuple(archives))
    return worker_imports.Archives(names, contents, files or WorkerFiles())
