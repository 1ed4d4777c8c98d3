"""Functions and records to bytes and back: plain pickle, and PySpark's cloudpickle for what the main script defines.

Knows no module but those of the pickles. What is read was authenticated before.
"""

from __future__ import annotations

import importlib.util
import io
import os
import pickle
import sys
import threading
from importlib.machinery import PathFinder
from typing import Any, Final

from penstock.model.former_modules import present_module, present_name

_CLOUDPICKLE: Final = "pyspark.cloudpickle.cloudpickle"


_UNPICKLING: Final = threading.RLock()


def serialize(value: object) -> bytes:
    """Pickle with functions and classes of the main script by value.

    Raises: whatever pickling raises, with the reason; the caller names the operator.
    """
    from pyspark import cloudpickle

    buffer = io.BytesIO()
    cloudpickle.CloudPickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def deserialize(data: bytes) -> Any:
    """On a TaskManager, after authentication only.

    One at a time: unpickling imports, and tasks that start together must not meet half-imported modules.
    """
    with _UNPICKLING:
        return loads_records(data)


def dumps_records(value: object) -> bytes:
    """Records for the wire: plain pickle, or cloudpickle for objects of the main script's own classes."""
    try:
        return pickle.dumps(value, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        return serialize(value)


def load_cloudpickle_alone() -> None:
    """For processes of ours: cloudpickle without the package around it. All of PySpark takes a second of
    start-up where it comes as a zip. Who imports that gets it, and this module with it.
    """
    package = importlib.util.find_spec("pyspark")
    folders = () if package is None else package.submodule_search_locations or ()
    places = [os.path.join(folder, "cloudpickle") for folder in folders]
    spec = PathFinder.find_spec(_CLOUDPICKLE, places)
    if spec is not None and spec.loader is not None and _CLOUDPICKLE not in sys.modules:
        module = sys.modules[_CLOUDPICKLE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


class _Unpickler(pickle.Unpickler):
    """Takes cloudpickle as it is loaded: the plain one imports the packages above it first. Finds classes of ours that stood
    elsewhere when they were pickled.
    """

    def find_class(self, module: str, name: str) -> Any:
        loaded = sys.modules.get(module) if module == _CLOUDPICKLE else None
        if loaded is not None:
            return getattr(loaded, name)
        return super().find_class(present_module(module, name), present_name(module, name))


def loads_records(data: bytes | bytearray | memoryview) -> Any:
    """What `dumps_records` and `serialize` made. After authentication only."""
    return _Unpickler(io.BytesIO(data)).load()
