"""Commands of the documentation's pages, for tests that follow them word by word."""

import shlex
from pathlib import Path

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def commands_of(page, title):
    """Under this title: the words of each of its indented lines, where a backslash joins two."""
    _, _, text = (GUIDES / page).read_text().partition(f"\n## {title}\n")
    lines = text.partition("\n## ")[0].replace("\\\n", "").splitlines()
    found = [shlex.split(line) for line in lines if line.startswith("    ")]
    assert found, f"{page} has no commands under {title!r}"
    return found
