"""What plants a bug into a module while a seed runs. Each file of bugs has a register of its own."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from unittest.mock import patch

Bug = Callable[[ExitStack], None]


class Plants:
    """The bugs of one file, by their names. `run`: runs a seed and returns its result."""

    def __init__(self, run: Callable[[int], object]) -> None:
        self._run = run
        self._bugs: dict[str, Bug] = {}

    def __call__(self, bug: Bug) -> Bug:
        """Register a bug; a decorator."""
        self._bugs[bug.__name__] = bug
        return bug

    @property
    def names(self) -> list[str]:
        return sorted(self._bugs)

    def caught(self, name: str, seeds: Iterable[int]) -> str | None:
        """Return the name of the invariant that the first seed breaks with this bug; None: no seed does."""
        with ExitStack() as stack:
            self._bugs[name](stack)
            for seed in seeds:
                violation = self._run(seed).violation
                if violation is not None:
                    return violation[0]
        return None


def swap(stack: ExitStack, owner: object, name: str, broken: object) -> None:
    """Put something broken in the place of an attribute, until the stack is closed."""
    stack.enter_context(patch.object(owner, name, broken))
