"""Who may write a file: other users, umasks, and what is left open to others."""

import contextlib
import os
import stat
from pathlib import Path

import pytest

SOMEBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@contextlib.contextmanager
def umask(bits: int):
    """Of this process: 0 takes nothing away from what a program asks for."""
    former = os.umask(bits)
    try:
        yield
    finally:
        os.umask(former)


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def open_to_others(folder) -> dict[str, str]:
    """What is in the folder that anybody but its owner may read or write, with its mode."""
    found = Path(folder).rglob("*")
    return {str(path): f"{mode(path):o}" for path in found if mode(path) & 0o077}
