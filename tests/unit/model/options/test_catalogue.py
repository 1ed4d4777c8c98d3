"""The options as objects: none is lost, none is asked for by a string, and the reference page shows them."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.model.options.catalogue import FORMER_KEYS, GROUPS, OPTIONS
from penstock.model.options.option import OptionGroup
from penstock.ui import option_pages

PACKAGE = Path(penstock.__file__).parent
TABLE = json.loads((Path(__file__).parent / "option_table.json").read_text(encoding="utf-8"))
# By which name a kind stands in the table.
KINDS = {
    "duration": "duration", "fine duration": "fine duration", "size": "memory", "whole number": "int",
    "number": "float", "true or false": "bool", "text": "str", "list of texts": "list",
    "pairs of texts": "map",
}  # fmt: skip
# The table says that these have no effect. AdaptiveBatch reads them.
ADDED = {
    "penstock.exchange.in-flight-time": ("duration", "250 ms"),
    "penstock.state-recovery.allow-int-to-double": ("bool", "false"),
    "penstock.console.line-interval": ("duration", "10 s"),
    "security.ssl.internal.enabled": ("bool", None),
}
"""Options that came after the table was made."""
READ_AFTER_ALL = "execution.batch.adaptive.auto-parallelism."


def test_no_option_is_lost_and_each_has_its_type_and_default() -> None:
    before = {key: (kind, default) for key, kind, default, _ in TABLE["options"]}
    now = {key: (KINDS[option.kind.name], option.default) for key, option in OPTIONS.items()}
    assert len(before) == 275
    assert now == before | ADDED


def test_an_option_has_an_effect_where_it_had_one() -> None:
    for key, _, _, was_used in TABLE["options"]:
        assert OPTIONS[key].is_used == (was_used or key.startswith(READ_AFTER_ALL)), key


def test_former_keys_lead_to_the_options_that_they_led_to() -> None:
    assert dict(FORMER_KEYS) == TABLE["former_keys"]


def test_every_group_of_options_is_in_the_catalogue() -> None:
    assert set(GROUPS) == set(OptionGroup.__subclasses__())


def test_every_option_says_what_it_means() -> None:
    for option in OPTIONS.values():
        assert option.doc.endswith((".", "?")), option.key


def test_an_older_option_has_the_type_of_the_one_that_it_stands_for() -> None:
    pairs = [(option, option.fallback) for option in OPTIONS.values() if option.fallback]
    assert len(pairs) == 8
    for option, older in pairs:
        assert (older.kind, older.default) == (option.kind, option.default), option.key


def test_the_reference_page_shows_what_the_options_say() -> None:
    written = option_pages.TARGET.read_text(encoding="utf-8")
    assert written == option_pages.page(), "run: python -m penstock.ui.option_pages"


def test_the_reference_page_shows_every_option_once() -> None:
    lines = option_pages.page().splitlines()
    for key in OPTIONS:
        assert sum(line.startswith(f"| `{key}` |") for line in lines) == 1, key


def keys_in(source: str) -> Iterator[tuple[int, str]]:
    """Lines with a string that is the key of an option, now or formerly."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and (node.value in OPTIONS or node.value in FORMER_KEYS)
        ):
            yield node.lineno, node.value


def modules() -> list[Path]:
    options = PACKAGE / "model" / "options"
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != options]


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nobody_asks_for_an_option_by_a_string(path: Path) -> None:
    found = list(keys_in(path.read_text(encoding="utf-8")))
    assert not found, (
        f"{path}: take the option's name, as TaskOptions.SLOW_CALL, instead of {found}"
    )


def test_a_string_that_is_a_key_is_found() -> None:
    assert list(keys_in('x = 1\nsettings.get("slot.idle.timeout")')) == [(2, "slot.idle.timeout")]
