"""The drawn state machines are those of the tables."""

from penstock.ui.state_diagrams import TARGET, document


def test_the_diagrams_are_up_to_date() -> None:
    written = TARGET.read_text(encoding="utf-8")
    assert written == document(), "run: python -m penstock.ui.state_diagrams"
