"""Commands of the documentation's pages, for tests that follow them word by word."""

import shlex
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def commands_of(page, title):
    """Under this title: the words of each of its indented lines, where a backslash joins two."""
    text = program_of(page, title).replace("\\\n", "")
    return [shlex.split(line) for line in text.splitlines()]


def program_of(page, title):
    """The indented lines under this title."""
    _, _, text = (GUIDES / page).read_text().partition(f"\n## {title}\n")
    lines = text.partition("\n## ")[0].splitlines()
    found = [line.removeprefix("    ") for line in lines if line.startswith("    ")]
    assert found, f"{page} has nothing to run under {title!r}"
    return "\n".join(found)
