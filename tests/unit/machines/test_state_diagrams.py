"""The drawn state machines are those of the tables."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_diagrams_are_up_to_date() -> None:
    draw = runpy.run_path(str(ROOT / "scripts" / "draw_states.py"))
    written = (ROOT / "docs" / "state-machines.md").read_text(encoding="utf-8")
    assert written == draw["document"](), "run: python scripts/draw_states.py"
