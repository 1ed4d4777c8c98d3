"""The reference pages are those that the code has."""

import re

import pytest

from penstock.common import Types
from penstock.runtime.codecs import codec_of
from scripts.reference_pages import documents
from tests.unit.docs.snippets import ROOT

GENERATED = documents()
TYPES = (ROOT / "docs" / "reference" / "types.md").read_text("utf-8")
TYPE_ROW = re.compile(r"^\| `(?P<made>Types\.[^`]+)` \| [^|]+ \| `?(?P<arrow>[^|`]+)`? \|$", re.M)


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_generated_page_is_up_to_date(path):
    assert path.read_text("utf-8") == GENERATED[path], "run: python -m scripts.reference_pages"


@pytest.mark.parametrize("row", list(TYPE_ROW.finditer(TYPES)), ids=lambda row: row["made"])
def test_a_type_travels_as_the_page_says(row):
    codec = codec_of(eval(row["made"], {"Types": Types}))
    assert str(codec.arrow or "pickled") == row["arrow"]


def test_the_page_of_types_has_all_of_them():
    named = set(re.findall(r"^\| `Types\.(\w+)", TYPES, re.MULTILINE))
    assert named == {name for name in vars(Types) if name.isupper()}
