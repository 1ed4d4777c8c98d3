"""Documents in memory, replaced on condition. A test may let an answer get lost."""

import threading


class MemoryDocuments:
    """`before`, `after`: called with each write, before and after it; what they raise is raised by `put`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[bytes, int]] = {}
        self.before = self.after = lambda: None

    def place_of(self, name):
        return f"memory/{name}"

    def names(self):
        return list(self._found)

    def get(self, name):
        found = self._found.get(name)
        return None if found is None else (found[0], str(found[1]))

    def put(self, name, data, version):
        self.before()
        with self._lock:
            _, number = self._found.get(name, (b"", None))
            is_same = version == (None if number is None else str(number))
            if is_same:
                self._found[name] = (data, (number or 0) + 1)
        self.after()
        return is_same

    def close(self):
        pass
