"""A class of messages that can be pickled: by the descriptors of its files, so that executors need no generated module.

Needs protobuf (`penstock[protobuf]`). Source: google.protobuf's descriptor_pool and message_factory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from penstock.common.extras import extra
from penstock.engine.model.errors import ConfigurationError

_WELL_KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that each registry knows."""


def google(module: str) -> Any:
    """A module of google.protobuf. Raises: ConfigurationError: it is not installed."""
    return extra(f"google.protobuf.{module}", "protobuf", "Protobuf")


class MessageClass:
    """The class that protoc or the message factory made of a message's definition."""

    def __init__(self, where: str, message_class: Any) -> None:
        """`where`: begins errors. Raises: ConfigurationError: it is no class of messages."""
        base = google("message").Message
        if not isinstance(message_class, type) or not issubclass(message_class, base):
            raise ConfigurationError(
                f"{where}: expected a message class that protoc has made, such as Order of "
                f"orders_pb2, got {message_class!r}."
            )
        self._class: Any = message_class
        self._files: tuple[bytes, ...] = ()
        self._name: str = self.descriptor.full_name

    @property
    def message(self) -> Any:
        """The class itself."""
        if self._class is None:
            pool = google("descriptor_pool").DescriptorPool()
            for file in self._files:
                pool.AddSerializedFile(file)
            descriptor = pool.FindMessageTypeByName(self._name)
            self._class = google("message_factory").GetMessageClass(descriptor)
        return self._class

    @property
    def descriptor(self) -> Any:
        return self.message.DESCRIPTOR

    def takes(self, value: object) -> bool:
        """Whether it is a message of this name, whatever its class."""
        descriptor = getattr(value, "DESCRIPTOR", None)
        return bool(getattr(descriptor, "full_name", None) == self._name)

    def __getstate__(self) -> dict[str, Any]:
        files = tuple(file.serialized_pb for file in _with_imports(self.descriptor.file))
        return {"_class": None, "_files": files, "_name": self._name}


def _with_imports(file: Any) -> Iterator[Any]:
    """The files that it imports, each once and before those that import it, and the file."""
    seen: set[str] = set()

    def each(one: Any) -> Iterator[Any]:
        if one.name not in seen:
            seen.add(one.name)
            for imported in one.dependencies:
                yield from each(imported)
            yield one

    return each(file)


def imports_to_register(file: Any) -> list[Any]:
    """The files that it imports and that a registry does not know by itself."""
    return [one for one in file.dependencies if not one.name.startswith(_WELL_KNOWN)]
